import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group

from laaciq.corpus import read_split
from laaciq.errors import BadOption, BrokenTexts, UnknownLanguage
from laaciq.models import find_model, load
from laaciq.options import MeasureOptions
from laaciq.profiling.redundancy import (
    FoldedTokens,
    _mean_updates,
    _without_blocks,
    population_entropy,
    predictive_redundancy,
    spectral_entropy,
    spectral_redundancy,
    unigram_nll,
)
from laaciq.scoring.likelihood import score
from laaciq.scoring.sequences import prepare_all
from tests.tiny import ARCHITECTURES, KIND, passages_of, save_tiny

WIDTH = 96
DRAWS = 6
DOCUMENT = 8

SPECTRA = {
    "flat, full rank": np.ones(WIDTH),
    "flat, rank a quarter": np.arange(WIDTH) < WIDTH // 4,
    "power law 0.5": np.arange(1, WIDTH + 1) ** -0.5,
    "power law 1": np.arange(1, WIDTH + 1) ** -1.0,
}


def entropy(spectrum):
    share = spectrum / spectrum.sum()
    return float(-(share[share > 0] * np.log(share[share > 0])).sum())


def gaussian(random, tokens, spectrum, memory=0.0):
    """Tokens in documents of eight; each remembers the one before it with correlation `memory`."""
    fresh = random.standard_normal((tokens // DOCUMENT, DOCUMENT, len(spectrum)))
    rows = [fresh[:, 0]]
    for k in range(1, DOCUMENT):
        rows.append(memory * rows[-1] + math.sqrt(1 - memory**2) * fresh[:, k])
    return torch.tensor(np.stack(rows, axis=1) * np.sqrt(spectrum) + 5)


def measured(documents, **options):
    folded = FoldedTokens(documents.shape[-1], **options)
    for number, rows in enumerate(documents):
        folded.add(str(number), rows)
    return spectral_redundancy(folded)


# Spectral


@pytest.mark.parametrize("rank", [1, 3, WIDTH])
def test_a_flat_spectrum_has_the_entropy_of_its_rank(rank):
    flat = torch.full((rank,), 7.0, dtype=torch.float64)
    assert spectral_entropy(flat) == pytest.approx(math.log(rank), abs=1e-12)
    # With n samples of rank r, ignorance adds r/2n.
    assert population_entropy(flat, 10**7, WIDTH) == pytest.approx(math.log(rank), abs=1e-5)


@pytest.mark.parametrize("samples", [2 * WIDTH, WIDTH])
def test_the_plug_in_entropy_of_a_flat_spectrum_is_too_small_by_rank_over_twice_the_samples(samples):
    """Page (1993), for large dimensions; the corrected one is right."""
    random = np.random.default_rng(0)
    result = [measured(gaussian(random, samples, np.ones(WIDTH))) for _ in range(DRAWS)]
    plug_in, corrected = (np.mean([getattr(f, name) for f in result]) for name in ("plug_in_entropy", "entropy"))
    # Finite width and the lost mean shift it by the order of 1/width.
    assert plug_in - math.log(WIDTH) == pytest.approx(-WIDTH / (2 * samples), abs=2 / WIDTH)
    assert corrected == pytest.approx(math.log(WIDTH), abs=2 / WIDTH)


@pytest.mark.parametrize("share", [2, 1, 0.5])
@pytest.mark.parametrize("name", SPECTRA)
def test_the_corrected_entropy_is_clearly_closer_than_the_plug_in(name, share):
    random = np.random.default_rng(1)
    spectrum, tokens = SPECTRA[name].astype(float), int(share * WIDTH)
    truth = entropy(spectrum)
    result = [measured(gaussian(random, tokens, spectrum)) for _ in range(DRAWS)]
    plug_in, corrected = (
        np.mean([getattr(f, name) for f in result]) - truth for name in ("plug_in_entropy", "entropy")
    )
    noise = np.std([f.entropy for f in result]) / math.sqrt(DRAWS)
    # A fifth of the bias, plus three standard errors of the mean over the draws.
    assert plug_in < 0
    assert abs(corrected) < 0.2 * abs(plug_in) + 3 * noise


def test_fewer_samples_than_the_rank_are_continued_to_the_whole_rank():
    random = np.random.default_rng(6)
    samples = WIDTH // 2
    rows = [random.standard_normal((samples, WIDTH)) for _ in range(DRAWS)]
    # Without a mean to remove. Eight times the spread of one draw's estimate, 0.03, over √6; the plug-in is 0.94 too small.
    result = [population_entropy(torch.linalg.svdvals(torch.tensor(x)) ** 2, samples, WIDTH) for x in rows]
    assert np.mean(result) == pytest.approx(math.log(WIDTH), abs=0.1)


@pytest.mark.parametrize("name", SPECTRA)
def test_tokens_that_hang_together_are_corrected_for(name):
    random = np.random.default_rng(2)
    spectrum = SPECTRA[name].astype(float)
    result = [measured(gaussian(random, 2 * WIDTH, spectrum, memory=0.5)) for _ in range(DRAWS)]
    plug_in, corrected = (
        np.mean([getattr(f, name) for f in result]) - entropy(spectrum) for name in ("plug_in_entropy", "entropy")
    )
    noise = np.std([f.entropy for f in result]) / math.sqrt(DRAWS)
    assert abs(corrected) < 0.2 * abs(plug_in) + 3 * noise


def test_the_standard_error_is_the_spread_over_samples():
    random = np.random.default_rng(3)
    spectrum = np.arange(1, 25) ** -1.0
    result = [measured(gaussian(random, 160, spectrum, memory=0.5)) for _ in range(60)]
    spread = np.std([f.entropy for f in result], ddof=1)
    typical = math.sqrt(np.mean([f.standard_error**2 for f in result]))
    # The spread of 60 samples is known to 9 %, the root mean square of 60 errors of 7 degrees of freedom to 5 %.
    assert typical == pytest.approx(spread, rel=0.35)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100), st.floats(-100, 100))
def test_rotation_scale_and_offset_change_nothing(seed, scale, offset):
    documents = gaussian(np.random.default_rng(seed), 80, np.arange(1, 13) ** -1.0)
    turn = torch.tensor(ortho_group.rvs(12, random_state=seed))
    plain, moved = measured(documents), measured(scale * (documents @ turn) + offset)
    # Offsets 10⁴ times the scale: their squares leave half of float64's digits, and the estimate multiplies differences by n.
    assert moved.entropy == pytest.approx(plain.entropy, abs=1e-4)
    assert moved.redundancy == pytest.approx(math.log(12) - moved.entropy)


def test_a_document_may_come_in_pieces_and_in_any_type():
    documents = gaussian(np.random.default_rng(4), 80, np.ones(6)).float()
    pieces = FoldedTokens(6)
    for number, rows in enumerate(documents):
        pieces.add(str(number), rows[:3])
    for number, rows in enumerate(documents):
        pieces.add(str(number), rows[3:])
    assert spectral_redundancy(pieces).entropy == pytest.approx(measured(documents.double()).entropy)


@pytest.mark.parametrize("documents", [3, 24])
def test_few_tokens_and_many_have_the_eigenvalues_of_their_covariance(documents):
    """With at most `width` tokens, those of their products with each other."""
    rows = gaussian(np.random.default_rng(6), documents * DOCUMENT, np.linspace(0.1, 1, WIDTH))
    folded = FoldedTokens(WIDTH)
    for number, document in enumerate(rows):
        folded.add(str(number), document)
    for left_out, kept in ((None, rows), (1, rows[[n for n in range(documents) if n % 8 != 1]])):
        tokens = kept.flatten(0, 1)
        rank = min(len(tokens) - 1, WIDTH)
        wanted = torch.linalg.eigvalsh(torch.cov(tokens.T) * (len(tokens) - 1))[-rank:]
        torch.testing.assert_close(folded.spectrum(left_out)[-rank:], wanted)


def test_one_document_has_no_standard_error():
    (document,) = gaussian(np.random.default_rng(5), DOCUMENT, np.ones(4))
    result = measured(document[None])
    values = torch.linalg.eigvalsh(torch.cov(document.T))
    assert result.standard_error is None
    assert result.tokens == DOCUMENT
    assert result.plug_in_entropy == pytest.approx(spectral_entropy(values))
    assert result.entropy == pytest.approx(population_entropy(values, DOCUMENT - 1, 4))


@pytest.mark.parametrize(
    ("rows", "message"), [(torch.ones(10, 4), "same representation"), (torch.eye(4)[:2], "2 tokens")]
)
def test_no_spectrum(rows, message):
    with pytest.raises(BrokenTexts, match=message):
        measured(rows[None])


# Predictive


def few(texts, codes, passages):
    chosen = texts.select(codes)
    return replace(chosen, by_language={code: p.at(range(passages)) for code, p in chosen.by_language.items()})


def test_unigrams_are_smoothed_over_the_types_seen_anywhere():
    # Two of 1, one of 2; 3 is new: three types, so probabilities 3/6, 2/6, 1/6.
    assert unigram_nll([1, 3], [1, 1, 2]) == pytest.approx(-(math.log(3 / 6) + math.log(1 / 6)) / 2)


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1), st.lists(st.integers(0, 9), min_size=1))
def test_unigram_probabilities_sum_to_one(tokens, calibration):
    types = {*tokens, *calibration}
    # Asked about all types at once, they are the same types; each probability follows from a text of that token alone.
    total = sum(math.exp(-_nll_of_one(token, types, calibration)) for token in types)
    assert total == pytest.approx(1)


def _nll_of_one(token, types, calibration):
    """−log p of one token, from the mean over all types with it once and with it twice."""
    once, twice = sorted(types), [*sorted(types), token]
    return len(twice) * unigram_nll(twice, calibration) - len(once) * unigram_nll(once, calibration)


def test_predictive_redundancy_of_the_reference_model():
    model, split = load(find_model("reference")), read_split()
    texts, calibration = few(split.test, ["eng", "swa"], 4), few(split.calibration, ["eng", "swa"], 12)
    nothing, one, two = (
        predictive_redundancy(model, texts, calibration, blocks, MeasureOptions()) for blocks in ([], [11], [11, 5, 11])
    )
    assert nothing == {"eng": 0, "swa": 0}
    for code in ("eng", "swa"):
        assert 0 < one[code] < two[code] < 1


@pytest.mark.parametrize("architecture", [name for name in ARCHITECTURES if KIND[name] == "causal"])
def test_blocks_of_every_causal_architecture_can_be_left_out(architecture, tmp_path):
    model = load(find_model(save_tiny(architecture, tmp_path)))
    passages = prepare_all(model, passages_of(("The cat sat.", "A much longer sentence.")))
    ablated = _without_blocks(model, _mean_updates(model, passages, [0, 1], 1))
    assert {p.data_ptr() for p in ablated.module.parameters()} == {p.data_ptr() for p in model.module.parameters()}
    result, again = score(model, ablated, passages), score(model, model, passages)
    np.testing.assert_array_equal(result.original_nll, again.original_nll)
    # Without any block nothing flows between positions: another token before it leaves the last prediction as it was.
    text = torch.tensor([passages[1].sequences[0].inputs], device=model.device)
    changed = text.clone()
    changed[0, 1] += 1
    with torch.inference_mode():
        whole, without = ([m.module(ids).logits[0, -1] for ids in (text, changed)] for m in (model, ablated))
    torch.testing.assert_close(*without)
    assert not torch.allclose(*whole)


def test_mean_updates_are_by_position_first_and_pooled_later(tmp_path):
    model = load(find_model(save_tiny("llama", tmp_path)))
    texts = ("The cat sat.", "A much longer sentence with number 42 in it.", "Ok then")
    passages = prepare_all(model, passages_of(texts))
    result = _mean_updates(model, passages, [0], 2)[0]
    rows = []
    for passage in passages:
        inputs = torch.tensor([passage.sequences[0].inputs], device=model.device)
        states = model.module(inputs, output_hidden_states=True).hidden_states
        rows.append((states[1] - states[0])[0].double())
    # Float32 in batches and one by one.
    close = {"rtol": 1e-4, "atol": 1e-6}
    torch.testing.assert_close(result.leading, torch.stack([row[:2] for row in rows]).mean(0), **close)
    torch.testing.assert_close(result.later, torch.cat([row[2:] for row in rows]).mean(0), **close)


def test_a_block_that_adds_a_constant_says_nothing(tmp_path):
    model = load(find_model(save_tiny("gpt2", tmp_path)))
    block = model.module.transformer.h[0]
    block.attn.c_proj.weight.zero_()
    block.mlp.c_proj.weight.zero_()
    assert block.mlp.c_proj.bias.abs().sum() > 0
    passages = prepare_all(model, passages_of(("The cat sat.", "A much longer sentence.")))
    result = score(model, _without_blocks(model, _mean_updates(model, passages, [0], 1)), passages)
    # Float32 sums over some twenty tokens.
    np.testing.assert_allclose(result.quantized_nll, result.original_nll, rtol=1e-5)


def test_a_model_no_better_than_unigrams_has_no_information_to_share(tmp_path):
    split = read_split()
    model = load(find_model(save_tiny("llama", tmp_path)))
    texts, calibration = few(split.test, ["eng"], 2), few(split.calibration, ["eng"], 4)
    assert math.isnan(predictive_redundancy(model, texts, calibration, [0], MeasureOptions())["eng"])


def test_what_cannot_be_asked(tmp_path):
    split = read_split()
    english, swahili = few(split.test, ["eng"], 1), few(split.test, ["swa"], 1)
    masked, causal = (load(find_model(save_tiny(name, tmp_path / name))) for name in ("bert", "llama"))
    with pytest.raises(BadOption, match="causal models only"):
        predictive_redundancy(masked, english, english, [0], MeasureOptions())
    with pytest.raises(BadOption, match="no block 2: give numbers from 0 to 1"):
        predictive_redundancy(causal, english, english, [0, 2], MeasureOptions())
    with pytest.raises(UnknownLanguage, match="no text in Swahili"):
        predictive_redundancy(causal, swahili, english, [0], MeasureOptions())
