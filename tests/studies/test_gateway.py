from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import laaciq
from laaciq.corpus import Split
from laaciq.errors import BadOption, BrokenTexts
from laaciq.models import find_model, load
from laaciq.options import GatewayOptions, GridOptions, MeasureOptions, WeightOptions
from laaciq.planning.rules import make_plans
from laaciq.scoring.likelihood import nll_by_passage
from laaciq.scoring.sequences import prepare_all
from laaciq.studies import gateway as gateway_module
from laaciq.studies import set_losses
from laaciq.studies.gateway import PASSAGE_TOKENS, gateway
from laaciq.studies.protection import nll_by_set
from laaciq.studies.texts import shortened
from laaciq.trials.candidate import RoundedMatrices
from laaciq.trials.quantized_copy import QuantizedCopy
from laaciq.trials.session import Session
from tests.tiny import save_tiny

FEW = ["eng", "swa", "hin"]
OPTIONS = MeasureOptions(served_bound=100)
GRID = {"bits": 3, "group_size": 16}
SETS = list(combinations(range(6), 3))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = save_tiny("llama", tmp_path_factory.mktemp("models") / "llama", num_hidden_layers=6)
    return load(find_model(folder), device="cpu")


@pytest.fixture(scope="module")
def parts():
    """Validation and test text, four and five short passages of each language."""
    whole = laaciq.read_split().select(FEW)

    def few(texts, count):
        short = {
            code: replace(entry.at(range(count)), texts=tuple(t[:40] for t in entry.texts[:count]))
            for code, entry in texts.by_language.items()
        }
        return replace(texts, by_language=short)

    return few(whole.validation, 4), few(whole.test, 5)


def searched(model, validation, test, measuring=OPTIONS, *, exhaustive=500, out=None, **options):
    session = Session.of(model, Split(validation, validation, test), measuring, out=out)
    return gateway(session, GatewayOptions.of(**(GRID | options)), exhaustive=exhaustive)


@pytest.fixture(scope="module")
def result(model, parts):
    return searched(model, *parts)


@pytest.fixture
def measured(monkeypatch):
    """How many sets were measured each time."""
    made = []

    def counted(blocks, prepared, sets, **options):
        made.append(len(sets))
        return nll_by_set(blocks, prepared, sets, **options)

    monkeypatch.setattr(set_losses, "nll_by_set", counted)
    return made


def brute_force(model, texts, protected):
    """ΔNLL per token by language: a whole pass with all other blocks quantized, and one of the original."""
    names = frozenset(linear.name for linear in model.anatomy.linears if linear.block not in protected)
    others, result = RoundedMatrices("others", names, GridOptions(**GRID)), []
    for code in FEW:
        prepared = prepare_all(model, texts[code])
        tokens = sum(len(s.targets) for passage in prepared for s in passage.sequences)
        before = nll_by_passage(model, prepared).sum()
        with others.applied(QuantizedCopy(model), code) as quantized:
            result.append((nll_by_passage(quantized, prepared).sum() - before) / tokens)
    return np.array(result)


def test_the_answer_is_that_of_brute_force(model, parts, result):
    # What is read of them: the small tokenizer has Hindi letter by letter, beyond 32 tokens.
    validation, test = (shortened(model, entry, passages=60, tokens=PASSAGE_TOKENS) for entry in parts)
    expected = {entry: brute_force(model, validation, entry) for entry in SETS}
    assert result.exhaustive
    assert result.possible == len(result.sets) == 20
    for entry in result.sets:
        # The head may be run on other batches, in float32: seven digits of an NLL of about six nats.
        assert entry.worst == pytest.approx(expected[entry.blocks].max(), abs=1e-5)
        assert entry.worst_language == FEW[int(expected[entry.blocks].argmax())]
        assert entry.mean == pytest.approx(expected[entry.blocks].mean(), abs=1e-5)
        assert entry.disparity == pytest.approx(np.ptp(np.expm1(expected[entry.blocks])), abs=1e-4)
    by_worst = sorted(SETS, key=lambda entry: expected[entry].max())
    assert [entry.blocks for entry in result.sets] == by_worst
    ranks = {entry.blocks: entry.rank.value for entry in result.tested if entry.rank}
    assert ranks == {entry: 1 + by_worst.index(entry) for entry in ranks}
    for entry in result.tested:
        losses = brute_force(model, test, entry.blocks)
        assert entry.worst.value == pytest.approx(losses.max(), abs=1e-5)
        assert entry.worst.value - result.tested[0].worst.value == pytest.approx(entry.behind_best.value, abs=1e-12)
        assert entry.mean.value == pytest.approx(losses.mean(), abs=1e-5)


def test_what_is_reported_on_test_text(result):
    named = {name: entry for entry in result.tested for name in entry.names}
    assert result.tested[0] is named["best"]
    assert named["best"].blocks == result.best().blocks
    assert named["least disparity"].blocks == result.best("disparity").blocks
    assert {0, 5} < set(named["first, best, last"].blocks)
    gates = [entry for entry in result.sets if {0, 5} < set(entry.blocks)]
    assert named["first, best, last"].blocks == gates[0].blocks
    assert named["none"].blocks == ()
    assert "published" not in named  # there is no block 9
    assert {entry.blocks for entry in result.sets[:3]} <= {entry.blocks for entry in result.tested}


def test_sizes_are_those_of_a_plan(model, result):
    plan = make_plans(model.anatomy, WeightOptions(**GRID, protect=("0,2,4",))).first
    entry = next(entry for entry in result.sets if entry.blocks == (0, 2, 4))
    assert (entry.bits_per_weight, entry.compression) == (plan.size.block_bits_per_weight, plan.size.compression)
    none = result.tested[-1]
    # 3 bits and a scale of 16 for every 16 weights.
    assert none.bits_per_weight == pytest.approx(4)


def test_shares_of_resamples_count_every_protected_block(result):
    for shares in result.best_share.values():
        assert sum(shares) == pytest.approx(3)
        assert all(0 <= share <= 1 for share in shares)


def test_the_theorys_set_is_ranked_where_its_blocks_exist(tmp_path, parts):
    folder = save_tiny("gpt2", tmp_path / "model", n_layer=12, n_embd=8, n_head=2, n_inner=8)
    search = searched(load(find_model(folder), device="cpu"), *(p.select(["eng"]) for p in parts))
    named = {name: reported for reported in search.tested for name in reported.names}
    assert len(search.sets) == 220
    assert named["published"].blocks == (0, 9, 11)
    rank = named["published"].rank
    assert 1 <= rank.low <= rank.high <= 220
    assert search.sets[rank.value - 1].blocks == (0, 9, 11)


def test_only_the_first_tokens_are_read(model, parts):
    """Of the test text 60 passages, of the validation text 10, 32 tokens of each: no more, whatever is given."""
    whole = laaciq.read_split().select(["eng"])
    short = shortened(model, whole.test, passages=60, tokens=32)
    assert len(short["eng"]) == 60
    assert all(text.startswith(entry) for text, entry in zip(whole.test["eng"].texts, short["eng"].texts, strict=True))
    prepared = prepare_all(model, short["eng"])
    counts = [sum(len(s.targets) for s in passage.sequences) for passage in prepared]
    # A text cut short is tokenized anew: its end may take another token or two.
    assert max(counts) <= 34
    assert min(counts) >= 30


# Too many sets to try them all


def test_where_losses_add_the_candidates_hold_the_best_of_all(model, parts, monkeypatch):
    """Every protected block saves each language what it saves alone. Block 0 and 5 save least, so that the theory's sets are no help."""
    gain = np.array([0.1, 2.0, 0.5, 3.0, 0.7, 0.2])

    def additive(blocks, prepared, sets, *, by_prefix, advance):
        return np.array([[100.0 - sum(gain[list(entry)])] * len(prepared) for entry in sets])

    monkeypatch.setattr(set_losses, "nll_by_set", additive)
    monkeypatch.setattr(gateway_module, "CANDIDATES", 3)
    search = searched(model, *parts, exhaustive=19)
    assert not search.exhaustive
    assert search.possible == 20
    assert search.best().blocks == (1, 3, 4)
    assert {(0, 1, 5), (0, 3, 5), (0, 4, 5)} < {s.blocks for s in search.sets} < set(SETS)
    assert search.additive_correlation == pytest.approx(1)
    for measured_set in search.sets:
        assert measured_set.predicted_worst == pytest.approx(measured_set.worst)


def test_candidates_are_measured_like_all_sets(model, parts, result, monkeypatch):
    monkeypatch.setattr(gateway_module, "CANDIDATES", 4)
    few = searched(model, *parts, exhaustive=19)
    every = {entry.blocks: entry for entry in result.sets}
    predicted = sorted(result.sets, key=lambda entry: entry.predicted_worst)
    assert {entry.blocks for entry in predicted[:4]} <= {entry.blocks for entry in few.sets}
    for entry in few.sets:
        assert entry.worst == pytest.approx(every[entry.blocks].worst, abs=1e-9)


@pytest.mark.parametrize("protect", [1, 2])
def test_fewer_than_three(model, parts, protect):
    search = searched(model, *parts, protect=protect, exhaustive=1)
    names = {name for reported in search.tested for name in reported.names}
    assert ("first, best, last" in names) == (protect == 2)
    assert all(len(s.blocks) == protect for s in search.sets)


# Resuming


def test_a_second_run_computes_nothing_and_says_the_same(model, parts, result, measured, tmp_path):
    def again(**changes):
        measured.clear()
        return searched(model, *parts, out=tmp_path / "run", **changes)

    assert again() == result
    # Single blocks and none, all sets, and what is reported, in three languages.
    assert measured == [7] * 3 + [20] * 3 + [len(result.tested)] * 3
    assert again() == result
    assert not measured
    again(bits=2)
    assert len(measured) == 9


def test_a_killed_run_goes_on_where_it_was(model, parts, result, measured, tmp_path, monkeypatch):
    counted = set_losses.nll_by_set

    def killed(*arguments, **options):
        if len(measured) == 5:
            raise KeyboardInterrupt
        return counted(*arguments, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(set_losses, "nll_by_set", killed)
        searched(model, *parts, out=tmp_path / "run")
    assert searched(model, *parts, out=tmp_path / "run") == result
    assert len(measured) == 9


def test_a_language_that_is_not_served_is_named_and_not_measured(model, parts, measured):
    original = {}
    for code in FEW:
        prepared = prepare_all(model, parts[0][code])
        original[code] = nll_by_passage(model, prepared).sum() / np.log(2) / sum(p.scored_bytes for p in prepared)
    bound = sorted(original.values())[1] * 1.0001
    search = searched(model, *parts, MeasureOptions(served_bound=bound))
    assert search.not_served == [max(original, key=original.get)]
    assert measured.count(20) == len(search.languages) == 2


def test_more_blocks_than_there_are_cannot_be_protected(model, parts, measured, tmp_path):
    with pytest.raises(BadOption, match="6 protected blocks are out of range: the model has 6; give 1 to 5"):
        searched(model, *parts, protect=6, out=tmp_path / "run")
    assert not measured
    assert not (tmp_path / "run").exists()


def test_texts_without_an_interval_are_refused(model, parts, measured):
    alone = replace(parts[0], by_language={"eng": parts[0]["eng"].at([0])})
    with pytest.raises(BrokenTexts, match="eng has fewer than two documents in the validation part"):
        searched(model, alone, parts[1])
    with pytest.raises(BrokenTexts, match="raise --served-bound"):
        searched(model, *parts, MeasureOptions(served_bound=0.01))
    assert not measured
