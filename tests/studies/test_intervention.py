from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import laaciq
from laaciq.corpus import Split
from laaciq.errors import BadOption
from laaciq.models import find_model, load
from laaciq.options import GridOptions, InterveneOptions, MeasureOptions
from laaciq.scoring.sequences import prepare
from laaciq.studies.intervened import Pruned, Rescaled, prune, rounded_plan
from laaciq.studies.intervention import EQUAL_LOSS, MOST_STEPS, equal_share, intervene
from laaciq.studies.rescaling import Rescalable
from laaciq.studies.segmentation import split_session, split_tokens
from laaciq.trials.quantized_copy import QuantizedCopy, copy_of
from laaciq.trials.session import Session
from tests.tiny import save_tiny


@pytest.fixture(scope="module")
def texts():
    whole = laaciq.read_split().test.select(["eng", "swa", "hin"])
    short = {
        code: replace(p.at(range(4)), texts=tuple(t[:60] for t in p.texts[:4])) for code, p in whole.by_language.items()
    }
    return replace(whole, by_language=short)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load(find_model(save_tiny("llama", tmp_path_factory.mktemp("models") / "llama")), device="cpu")


def set_cause(model, texts, do, **options):
    session = Session.of(model, Split(texts, texts, texts), MeasureOptions(served_bound=100))
    return intervene(session, InterveneOptions.of(do=do, group_size=16, bits=3, **options))


def test_kurtosis_is_set_and_the_original_is_left_alone(model, texts):
    kept = copy_of(model)
    result = set_cause(model, texts, "kurtosis", kurtosis=(20.0, 100.0))
    assert [level.name for level in result.levels] == ["unchanged", "smallest κ", "κ = 20", "κ = 100"]
    assert result["unchanged"].loss_effect is None
    assert all(level.loss_effect is not None for level in result.levels[1:])
    assert all(value == pytest.approx(20.0, rel=1e-3) for value in result["κ = 20"].set_to.values())
    assert all(level.drift < 1e-4 for level in result.levels[1:])
    for one, other in zip(model.module.parameters(), kept.module.parameters(), strict=True):
        assert torch.equal(one, other)


def test_kurtosis_alone_raises_the_error_of_rounding(model):
    """Of logits: a random model has no likelihood to lose."""
    plan, rescalable = rounded_plan(model, GridOptions(bits=4, group_size=16)), Rescalable(model)
    ids = model.tokenizer("The first rain fell on 12 March.", return_tensors="pt")["input_ids"]
    errors = []
    for target in (None, 20.0, 100.0):
        powers = {} if target is None else rescalable.powers(dict.fromkeys(rescalable.blocks, target))
        with Rescaled("rescaled", tuple(powers.items()), plan).applied(QuantizedCopy(model), "eng") as quantized:
            errors.append(float((quantized.module(ids).logits - model.module(ids).logits).square().mean()))
    assert errors[0] < errors[1] < errors[2]


def test_more_tokens_for_the_same_text(model, texts):
    result = set_cause(model, texts, "tokens", rates=(0.5,))
    before, after = result.levels
    for code in result.languages:
        assert after.set_to[code] > before.set_to[code]
    assert after.loss_effect is not None and after.per_byte_effect is not None


def test_split_tokens_spell_the_same_text_in_as_many_bytes(model, texts):
    split = split_tokens(model, 0.6, seed=1)
    for code, passages in texts.by_language.items():
        for text in passages.texts:
            plain, parts = (prepare(m, text, passages.language) for m in (model, split))
            again = prepare(split_tokens(model, 0.6, seed=1), text, passages.language)
            assert parts == again, code
            assert parts.scored_bytes == plain.scored_bytes
            assert parts.scored_tokens > plain.scored_tokens
            decoded = [model.tokenizer.decode(p.sequences[0].targets) for p in (plain, parts)]
            assert decoded[0] == decoded[1]


def test_a_language_can_be_spared(model, texts):
    session = Session.of(model, Split(texts, texts, texts), MeasureOptions())
    changed = split_session(session, 0.6, spared="eng").original
    for code, passages in texts.by_language.items():
        tokens = [sum(prepare(m, t, passages.language).scored_tokens for t in passages.texts) for m in (model, changed)]
        assert (tokens[0] == tokens[1]) == (code == "eng")


def test_tokens_that_cannot_be_split_are_refused(tmp_path):
    model = load(find_model(save_tiny("llama", tmp_path)), device="cpu")
    with pytest.raises(BadOption, match="has no shorter tokens"):
        split_tokens(model, 0.5, seed=0, texts=["~"])


def test_bits_of_every_part(model, texts):
    result = set_cause(model, texts, "bits", to_bits=8)
    assert [level.name for level in result.levels] == [
        "unchanged", "block 0", "block 1", "attention", "feed-forward", "embeddings",
    ]  # fmt: skip
    # Both components at 8 bits are all of the blocks: each recovers a part of the loss.
    assert result["attention"].loss_effect.value + result["feed-forward"].loss_effect.value < 0
    assert result["block 0"].set_to == {"block 0": 8.0}


def test_pruning_instead_of_quantization(model, texts):
    quantized, pruned = set_cause(model, texts, "pruning").levels
    assert quantized.set_to == {} and 0 < pruned.set_to["share"] < 1
    assert pruned.loss_effect is not None


@pytest.mark.parametrize("target", [0.1, 0.5, 4.0])
def test_the_share_that_loses_as_much_as_quantization(texts, target):
    """A random model loses nothing, so the loss is that of a model that loses ever more: e^(5·share) − 1 per token."""

    class Losing:
        tried = 0

        def losses(self, candidate, texts, *, part):
            self.tried += 1
            loss = np.expm1(5 * candidate.share) if isinstance(candidate, Pruned) else target
            return {
                code: SimpleNamespace(served=True, loss=np.array([10 * loss]), tokens=[10]) for code in texts.languages
            }

    session = Losing()
    share = equal_share(session, texts, object())
    assert np.expm1(5 * share) == pytest.approx(target, rel=EQUAL_LOSS)
    assert session.tried <= 1 + MOST_STEPS


def test_the_smallest_weights_are_pruned():
    weights = torch.tensor([[3.0, -1.0, 0.5], [-2.0, 4.0, 0.1]])
    assert prune(weights, 0.5).tolist() == [[3.0, 0.0, 0.0], [-2.0, 4.0, 0.0]]
    assert torch.equal(prune(weights, 0.0), weights)
    assert np.count_nonzero(prune(torch.ones(10), 0.5)) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"do": "bits", "kurtosis": (5.0,)}, "--kurtosis has an effect only with --do kurtosis"),
        ({"do": "kurtosis", "rates": (0.5,)}, "--rates has an effect only with --do tokens"),
        ({"do": "tokens", "rates": (1.5,)}, r"--rates 1\.5 is no probability"),
        ({"do": "pruning", "to_bits": 3}, "--to-bits has an effect only with --do bits"),
        ({"do": "bits", "to_bits": 4}, "--to-bits 4 is what all parts have already"),
        ({"blocks": ()}, "--blocks is empty"),
    ],
)
def test_options_without_effect_are_refused(options, message):
    with pytest.raises(BadOption, match=message):
        InterveneOptions.of(**options)
