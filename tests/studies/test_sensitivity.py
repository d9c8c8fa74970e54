import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kurtosis

import laaciq
from laaciq.corpus import Split
from laaciq.errors import BadOption, BrokenTexts
from laaciq.models import find_model, load
from laaciq.options import GridOptions, MeasureOptions
from laaciq.quantization.matrices import quantize_matrix
from laaciq.quantization.plan import TensorPlan
from laaciq.scoring.likelihood import nll_by_passage, score
from laaciq.scoring.sequences import prepare_all
from laaciq.studies.sensitivity import critical_blocks, parts_of, pooled_kurtosis, sensitivity
from laaciq.trials import candidate, measurement
from laaciq.trials.candidate import RoundedMatrices
from laaciq.trials.measurement import measure
from laaciq.trials.quantized_copy import QuantizedCopy
from laaciq.trials.session import Session
from tests.tiny import save_tiny

FEW = ["eng", "swa", "hin"]
OPTIONS = MeasureOptions(served_bound=100)
GRID = GridOptions(bits=3, group_size=16)


@pytest.fixture(scope="module")
def texts():
    whole = laaciq.read_split().calibration.select(FEW)
    short = {
        code: replace(p.at(range(6)), texts=tuple(t[:60] for t in p.texts[:6])) for code, p in whole.by_language.items()
    }
    return replace(whole, by_language=short)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """gpt2 has transposed weights and a tied head, llama a head of its own."""
    folder = tmp_path_factory.mktemp("models")
    return {name: load(find_model(save_tiny(name, folder / name)), device="cpu") for name in ("gpt2", "llama")}


def session_of(model, texts, options=OPTIONS, out=None):
    return Session.of(model, Split(texts, texts, texts), options, out=out)


def copied(model):
    return replace(model, module=copy.deepcopy(model.module))


def weights(model):
    return {name: tensor.clone() for name, tensor in model.module.state_dict().items()}


def changed(before, after):
    return {name for name in before if not torch.equal(before[name], after[name])}


def quantize_by_hand(model, names, *, bits, group_size, symmetric):
    rounded = copied(model)
    transposed = {linear.name for linear in model.anatomy.linears if linear.transposed}
    with torch.no_grad():
        for name, parameter in rounded.module.named_parameters():
            if name in names:
                matrix = parameter.t() if name in transposed else parameter
                plan = TensorPlan(
                    name=name, shape=tuple(matrix.shape), bits=bits, group_size=group_size, symmetric=symmetric
                )
                matrix.copy_(quantize_matrix(matrix, plan).dequantize(plan))
    return rounded


# Parts, and quantizing them for a while


def test_parts_are_blocks_embeddings_and_an_untied_head(models):
    llama = parts_of(models["llama"])
    assert list(llama) == ["block 0", "block 1", "embeddings", "head"]
    assert llama["embeddings"] == {"model.embed_tokens.weight"}
    assert llama["head"] == {"lm_head.weight"}
    assert {name for block in (0, 1) for name in llama[f"block {block}"]} == {
        linear.name for linear in models["llama"].anatomy.linears
    }


def test_a_tied_head_is_part_of_the_embeddings_and_positions_are_not(models):
    gpt2 = parts_of(models["gpt2"])
    assert list(gpt2) == ["block 0", "block 1", "embeddings"]
    assert gpt2["embeddings"] == {"transformer.wte.weight"}


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_named_parts_of_the_copy_and_no_others_are_quantized(models, name, symmetric):
    model = models[name]
    before, copy = weights(model), QuantizedCopy(model)
    # One after the other on the same copy: nothing of the part before is left.
    for part, names in parts_of(model).items():
        candidate = RoundedMatrices(part, frozenset(names), GridOptions(bits=2, group_size=16, symmetric=symmetric))
        with candidate.applied(copy, "eng") as quantized:
            aliases = {"lm_head.weight"} if names == {"transformer.wte.weight"} else set()
            assert changed(before, weights(quantized)) == names | aliases
    assert not changed(before, weights(model))


def test_failing_half_way_leaves_the_copy_to_be_written_again(models, monkeypatch):
    model, calls = models["llama"], []
    copy = QuantizedCopy(model)
    part = RoundedMatrices("block 0", frozenset(parts_of(model)["block 0"]), GRID)

    def failing(matrix, plan):
        if calls:
            raise MemoryError
        calls.append(plan)
        return quantize_matrix(matrix, plan)

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(candidate, "quantize_matrix", failing)
        with part.applied(copy, "eng"):
            pass
    assert calls
    with part.applied(copy, "eng") as quantized:
        assert changed(weights(model), weights(quantized)) == parts_of(model)["block 0"]


def test_tied_matrices_are_quantized_once(models, monkeypatch):
    model, seen = models["gpt2"], []
    monkeypatch.setattr(
        candidate, "quantize_matrix", lambda matrix, plan: seen.append(plan.name) or quantize_matrix(matrix, plan)
    )
    tied = RoundedMatrices("tied", frozenset({"transformer.wte.weight", "lm_head.weight"}), GRID)
    with tied.applied(QuantizedCopy(model), "eng") as quantized:
        head, embeddings = quantized.module.lm_head.weight, quantized.module.transformer.wte.weight
        assert head.data_ptr() == embeddings.data_ptr()
    assert len(seen) == 1


@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.9.mlp.up_proj.weight"])
def test_what_is_no_matrix_of_the_model_is_refused(models, name):
    wrong = RoundedMatrices("wrong", frozenset({name}), GRID)
    with pytest.raises(BadOption, match="has no matrix"), wrong.applied(QuantizedCopy(models["llama"]), "eng"):
        pass


# Losses


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_one_model_alone_gives_the_losses_that_two_side_by_side_give(models, texts, name):
    model, advanced = models[name], []
    prepared = prepare_all(model, texts["swa"])
    expected = score(model, model, prepared)
    result = nll_by_passage(model, prepared, advance=advanced.append)
    assert result == pytest.approx(expected.original_nll, rel=1e-12)
    assert sum(advanced) == expected.tokens.sum()


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_single_losses_are_those_of_a_model_quantized_by_hand(models, texts, name):
    model = models[name]
    before = weights(model)
    result = sensitivity(session_of(model, texts), texts, GRID)
    assert not changed(before, weights(model))
    assert result.parts == list(parts_of(model))
    assert result.languages == FEW
    for index, names in enumerate(parts_of(model).values()):
        rounded = quantize_by_hand(model, names, **GRID.model_dump())
        for code in FEW:
            measured = measure(model, rounded, texts[code], OPTIONS)
            expected = (sum(measured.quantized_nll) - sum(measured.original_nll)) / sum(measured.tokens)
            # The two batch differently, in float32: seven digits of an NLL of about six nats.
            assert result.loss[code][index].value == pytest.approx(expected, abs=1e-5)
            assert result.loss[code][index].low <= result.loss[code][index].value <= result.loss[code][index].high


def test_a_planted_block_is_critical_and_stands_out_in_kurtosis(texts):
    """A norm's gain over 200, the columns that it feeds times 200: the model's function stays, but one outlier a row leaves all other
    weights of the row at zero, and six bits are enough for every other block. On the reference model, since a random one may gain from
    whatever destroys it.
    """
    model, planted = load(find_model("reference"), device="cpu"), 5
    block = model.module.model.layers[planted]
    fed = {
        block.input_layernorm: [block.self_attn.q_proj, block.self_attn.k_proj, block.self_attn.v_proj],
        block.post_attention_layernorm: [block.mlp.gate_proj, block.mlp.up_proj],
    }
    with torch.no_grad():
        for norm, linears in fed.items():
            norm.weight[0] /= 200
            for linear in linears:
                linear.weight[:, 0] *= 200
    texts = texts.spread(3)
    result = sensitivity(session_of(model, texts), texts, GridOptions(bits=6, group_size="channel"))
    assert np.argmax(result.kurtosis) == planted
    assert result.kurtosis_correlation.n == 12
    assert result.kurtosis_correlation.r > 0.9
    for code in FEW:
        assert result.critical_blocks[code] == [planted]


def test_without_blocks_enough_there_is_no_correlation(models, texts):
    result = sensitivity(session_of(models["llama"], texts), texts, GRID)
    assert result.kurtosis_correlation is None


def test_a_language_that_is_not_served_is_named_and_not_measured(models, texts):
    original = {code: measure(models["llama"], models["llama"], texts[code], OPTIONS) for code in FEW}
    bits = {code: measured.original_bits_per_byte for code, measured in original.items()}
    bound = sorted(bits.values())[1]
    options = MeasureOptions(served_bound=bound * 1.0001)
    result = sensitivity(session_of(models["llama"], texts, options), texts, GRID)
    assert result.not_served == [max(bits, key=bits.get)]
    assert set(result.loss) == set(FEW) - set(result.not_served)


# What is made of them


@given(st.lists(st.floats(-1, 10, allow_nan=False, allow_subnormal=False), min_size=1, max_size=12))
def test_critical_blocks_are_the_fewest_that_carry_half(values):
    positive = np.maximum(values, 0)
    chosen = critical_blocks(np.array(values))
    half = positive.sum() / 2
    # A few units in the last place: the order of summing differs.
    assert positive[chosen].sum() >= half * (1 - 1e-12)
    # The smallest floats have no half.
    assert len(chosen) == 0 or half < 1e-300 or positive[chosen[:-1]].sum() < half * (1 + 1e-12)
    assert list(positive[chosen]) == sorted(positive, reverse=True)[: len(chosen)]


@given(st.integers(0, 2**31), st.floats(-5, 5))
def test_pooled_kurtosis_is_that_of_all_weights_in_one(seed, shift):
    random = np.random.default_rng(seed)
    first, second = random.standard_t(5, (7, 11)), 3 * random.normal(size=(5, 4)) + shift
    result = pooled_kurtosis([torch.tensor(first), torch.tensor(second)])
    assert result == pytest.approx(kurtosis(np.concatenate([first.ravel(), second.ravel()])), abs=1e-9)


def test_losses_that_add_have_an_additive_share_of_one(models, texts, monkeypatch):
    """Ten nats per passage for every quantized matrix, so that parts add up exactly."""
    model = models["llama"]
    original = {name: p.clone() for name, p in model.module.named_parameters()}

    def counting(module, prepared, advance):
        matrices = sum(not torch.equal(p, original[name]) for name, p in module.module.named_parameters())
        return np.full(len(prepared), 100.0 + 10 * matrices)

    monkeypatch.setattr(measurement, "nll_by_passage", counting)
    result = sensitivity(session_of(model, texts), texts, GRID)
    for code in FEW:
        share = result.additive_share[code]
        assert (share.value, share.low, share.high) == pytest.approx((1, 1, 1))
        assert result.together[code].value == pytest.approx(sum(part.value for part in result.loss[code]))


# Resuming


@pytest.fixture
def calls(monkeypatch):
    made = []

    def counted(model, prepared, **options):
        made.append(len(prepared))
        return nll_by_passage(model, prepared, **options)

    monkeypatch.setattr(measurement, "nll_by_passage", counted)
    return made


def test_a_second_run_computes_nothing_and_says_the_same(models, texts, tmp_path, calls):
    def again(grid=GRID):
        calls.clear()
        return sensitivity(session_of(models["llama"], texts, out=tmp_path / "run"), texts, grid)

    first = again()
    assert len(calls) == 6 * len(FEW)
    assert again() == first
    assert not calls
    again(GridOptions(bits=2, group_size=16))
    assert len(calls) == 5 * len(FEW)


def test_a_killed_run_goes_on_where_it_was(models, texts, tmp_path, calls, monkeypatch):
    def run(out=None):
        return sensitivity(session_of(models["gpt2"], texts, out=out), texts, GRID)

    expected = run()
    calls.clear()

    def killed(model, prepared, **options):
        if len(calls) == 7:
            raise KeyboardInterrupt
        return counted(model, prepared, **options)

    counted = measurement.nll_by_passage
    before = weights(models["gpt2"])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(measurement, "nll_by_passage", killed)
        run(tmp_path / "run")
    assert not changed(before, weights(models["gpt2"]))
    result = run(tmp_path / "run")
    assert len(calls) == 5 * len(FEW)
    assert result == expected


def test_texts_without_an_interval_are_refused_before_anything_is_measured(models, texts, calls):
    alone = replace(texts, by_language={"eng": texts["eng"].at([0])})
    with pytest.raises(BrokenTexts, match="fewer than two documents"):
        sensitivity(session_of(models["llama"], alone), alone, GRID)
    assert not calls
