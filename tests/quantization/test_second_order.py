import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import laaciq
from laaciq.errors import BrokenModel
from laaciq.models import find_model, load
from laaciq.options import MeasureOptions, WeightOptions
from laaciq.planning.rules import make_plans
from laaciq.profiling.activations import blocks_in_encoder, mask_for, prepare_whole
from laaciq.profiling.profile import profile_model
from laaciq.quantization import Calibration
from laaciq.quantization.blockwise import BlockStream
from laaciq.quantization.calibration import TensorCalibration
from laaciq.quantization.hessian import DAMPING, Hessian, inverse_factor
from laaciq.quantization.matrices import quantize_matrix
from laaciq.quantization.model import _block_for_rounding, quantize_layers
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.second_moments import MomentSums, batched_by_language, token_weights, watched
from laaciq.scoring.likelihood import read_through
from tests.tiny import ARCHITECTURES, save_tiny

FEW = ["eng", "swa"]


def case(seed, *, inputs=24, rank=40, group_size=8, symmetric=True, keep=0.0, bits=3):
    random = torch.Generator().manual_seed(seed)
    matrix = torch.randn(5, inputs, generator=random).to(torch.bfloat16).float()
    mixed = torch.randn(rank, inputs, generator=random) @ torch.randn(inputs, inputs, generator=random)
    plan = TensorPlan(
        name="w",
        shape=(5, inputs),
        bits=bits,
        group_size=group_size,
        symmetric=symmetric,
        clip="effective",
        rounding="second-order",
        keep=keep,
    )
    return matrix, plan, mixed.T @ mixed / rank


def known(moments):
    return TensorCalibration(moments.diagonal()[None] / moments.diagonal().mean(), effective_kurtosis=0.0)


def naive(matrix, grid, plan, moments):
    """The same without a Cholesky factor: invert what remains of H after every input."""
    inputs = matrix.shape[1]
    damped = moments.double() + DAMPING * moments.diagonal().double().mean() * torch.eye(inputs, dtype=torch.float64)
    weights, rounded = matrix.double().clone(), torch.zeros_like(matrix, dtype=torch.float64)
    remaining = moments.diagonal().argsort(descending=True).tolist()
    scales = grid.scales.double().repeat_interleave(plan.group_inputs, 1)
    levels = 2 ** (plan.bits - 1) - 1
    zeros = levels if grid.zeros is None else grid.zeros.double().repeat_interleave(plan.group_inputs, 1)
    top = 2 * levels if grid.zeros is None else 2**plan.bits - 1
    while remaining:
        inverse = torch.linalg.inv(damped[remaining][:, remaining])
        i = remaining.pop(0)
        zero = zeros if isinstance(zeros, int) else zeros[:, i]
        rounded[:, i] = ((weights[:, i] / scales[:, i] + zero).round().clamp(0, top) - zero) * scales[:, i]
        error = (weights[:, i] - rounded[:, i]) / inverse[0, 0]
        weights[:, remaining] -= error[:, None] * inverse[0, 1:]
    return rounded


@given(st.integers(0, 300), st.sampled_from([8, "channel"]), st.booleans())
def test_it_equals_the_naive_algorithm(seed, group_size, symmetric):
    matrix, plan, moments = case(seed, group_size=group_size, symmetric=symmetric)
    quantized = quantize_matrix(matrix, plan, known(moments), Hessian(moments))
    expected = naive(matrix, quantized.grid, plan, moments).float()
    # A weight that lies half-way between two codes may go either way, in one of a hundred rows at most.
    same = torch.isclose(quantized.dequantize(plan), expected, atol=1e-4).all(1)
    assert same.float().mean() >= 0.8


@given(st.integers(0, 300), st.sampled_from([8, "channel", "tensor"]), st.booleans(), st.sampled_from([0.0, 5.0]))
def test_it_loses_less_than_rounding_to_nearest(seed, group_size, symmetric, keep):
    """In the error that outputs see, on the same grid, over a matrix; greedy as it is, hardly ever more."""
    matrix, plan, moments = case(seed, group_size=group_size, symmetric=symmetric, keep=keep, inputs=64, rank=100)
    nearest = plan.model_copy(update={"rounding": "nearest"})

    def error(entry):
        difference = quantize_matrix(matrix, entry, known(moments), Hessian(moments)).dequantize(entry) - matrix
        return float(torch.einsum("ri,ij,rj->", difference, moments, difference))

    assert error(plan) < error(nearest)


@given(st.integers(0, 300), st.floats(0.5, 10))
def test_kept_weights_are_exact(seed, keep):
    matrix, plan, moments = case(seed, keep=keep)
    simulated = quantize_matrix(matrix, plan, known(moments), Hessian(moments)).dequantize(plan)
    chosen = matrix.abs().flatten().topk(plan.kept).indices if plan.kept else torch.zeros(0, dtype=torch.int64)
    assert torch.equal(simulated.flatten()[chosen], matrix.flatten()[chosen])


@pytest.mark.parametrize("inputs", [1, 37, 1027])
def test_factors_are_those_of_the_damped_inverse(inputs):
    """Narrow ones, and one that is inverted in parts."""
    rows = torch.randn(2 * inputs, inputs, generator=torch.Generator().manual_seed(0))
    rows = (rows + rows[:, :1]) * torch.logspace(-1, 1, inputs)
    hessian = Hessian(rows.T @ rows / len(rows))
    upper, damped = hessian.inverse_factor.double(), hessian.damped[hessian.order][:, hessian.order].double()
    assert torch.equal(upper, upper.triu())
    assert (upper.diagonal() > 0).all()
    identity = torch.eye(inputs, dtype=torch.float64)
    torch.testing.assert_close(upper @ damped @ upper.T, identity, rtol=0, atol=1e-5)
    torch.testing.assert_close(hessian.pivots(), upper.diagonal() ** -2, rtol=1e-6, atol=0)
    right = torch.randn(inputs, 3, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(
        hessian.damped.double() @ hessian.solve(right).double(), right.double(), rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", [(3, 3), (3, 4)])
def test_moments_of_a_model_that_overflows_are_refused(number, place):
    """More damping would never help."""
    moments = torch.eye(24)
    moments[place] = moments[place[::-1]] = number
    with pytest.raises(BrokenModel, match="cannot be rounded: give --dtype float32"):
        _ = Hessian(moments).inverse_factor
    with pytest.raises(BrokenModel, match="NaN or infinite"):
        Hessian(moments).pivots()


@pytest.mark.parametrize("rank", [0, 1, 5])
def test_too_little_text_is_no_failure(rank):
    """SecondMoments of few tokens have no inverse; those of none are zero; inputs that never fire have a zero row."""
    matrix, plan, _ = case(0)
    rows = torch.randn(rank, 24, generator=torch.Generator().manual_seed(1))
    rows[:, 3] = 0
    moments = rows.T @ rows
    assert torch.isfinite(inverse_factor(moments)).all()
    simulated = quantize_matrix(matrix, plan, known(moments + 1e-12 * torch.eye(24)), Hessian(moments)).dequantize(plan)
    assert torch.isfinite(simulated).all()
    assert (simulated - matrix).abs().max() < matrix.abs().max()


def calibrate(model, languages=FEW):
    texts = laaciq.read_split("builtin").calibration.select(languages).spread(2)
    options = MeasureOptions()
    return Calibration(profile_model(model, texts, options, outlier_kurtosis=50), texts, options)


@torch.inference_mode()
def moments_of_a_pass(model, calibration, languages=FEW):
    """E[xxᵀ] of every layer's inputs by name, averaged over languages, from passes over the whole model."""
    passages = {code: prepare_whole(model, calibration.texts[code], calibration.options) for code in languages}
    batched = batched_by_language(model, passages)
    weights = token_weights(model, batched, dict.fromkeys(languages, 1 / len(languages)))
    in_encoder, sums = blocks_in_encoder(model), MomentSums()
    for (_, sequences), by_side in zip(batched, weights, strict=True):

        def add(layer, inputs, by_side=by_side):
            sums.add(layer, inputs, mask_for(inputs, by_side, in_encoder[layer.block]))

        with watched(list(model.anatomy.linears), add):
            read_through(model, sequences)
    return {name: seen.moments for name, seen in sums.by_layer.items()}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_block_by_block_is_what_a_whole_pass_sees(architecture, tmp_path):
    """As long as nothing is quantized: the blocks, run one at a time, see the inputs of a pass over the model."""
    model = load(find_model(save_tiny(architecture, tmp_path)), device="cpu")
    calibration = calibrate(model)
    linears = list(model.anatomy.linears)
    whole = moments_of_a_pass(model, calibration)
    stream = BlockStream(model, calibration, dict.fromkeys(FEW, 0.5))
    for index in range(len(model.anatomy.block_names)):
        single = [linear for linear in linears if linear.block == index]
        for name, moments in stream.second_moments(index, single).items():
            torch.testing.assert_close(
                moments.moments, whole[name], rtol=1e-3, atol=1e-4 * float(whole[name].abs().max())
            )
        stream.advance(index)


def test_moments_are_of_all_tokens_that_are_read(tmp_path):
    """The start token too: it is no text, but every later token attends to it."""
    model = load(find_model(save_tiny("llama", tmp_path)), device="cpu")
    calibration = calibrate(model, ["eng"])
    linear = next(iter(model.anatomy.linears))
    seen = []
    handle = linear.module.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0][0]))
    for passage in prepare_whole(model, calibration.texts["eng"], calibration.options):
        for sequence in passage.sequences:
            assert sequence.inputs[0] == model.tokenizer.bos_token_id
            model.module(torch.tensor([sequence.inputs]))
    handle.remove()
    rows = torch.cat(seen)
    single = BlockStream(model, calibration, {"eng": 1.0}).second_moments(0, [linear])[linear.name].moments
    torch.testing.assert_close(single, rows.T @ rows / len(rows))


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "mt5"])
def test_later_blocks_are_calibrated_on_what_earlier_ones_became(architecture, tmp_path):
    model = load(find_model(save_tiny(architecture, tmp_path)), device="cpu")
    calibration = calibrate(model)
    before = [linear.matrix.clone() for linear in model.anatomy.linears]
    plan = make_plans(model.anatomy, WeightOptions(method="gptq", bits=2, group_size=16), calibration.profile).first
    layers = list(quantize_layers(model, plan, calibration))
    assert [tensor.name for tensor, _ in layers] == [tensor.name for tensor in plan.tensors]
    # The model itself is what it was.
    assert all(torch.equal(linear.matrix, old) for linear, old in zip(model.anatomy.linears, before, strict=True))
    alone = moments_of_a_pass(model, calibration)
    differs = {}
    for (tensor, quantized), linear in zip(layers, model.anatomy.linears, strict=True):
        moments = alone[tensor.name]
        expected = quantize_matrix(linear.matrix, tensor, known(moments), Hessian(moments))
        differs.setdefault(linear.block, []).append(not torch.equal(expected.codes, quantized.codes))
    last = max(differs)
    assert not all(differs[0])
    assert any(differs[last])


def test_blocks_are_calibrated_on_what_embeddings_became(tmp_path):
    """As if the model had had the quantized embeddings from the start; it has its own ones again afterwards."""
    model = load(find_model(save_tiny("gpt2", tmp_path)), device="cpu")
    calibration = calibrate(model)
    options = {"method": "gptq", "group_size": 16}
    plain = make_plans(model.anatomy, WeightOptions(**options), calibration.profile).first
    plan = make_plans(model.anatomy, WeightOptions(embedding_bits=2, **options), calibration.profile).first
    (table,) = model.anatomy.token_matrices
    before = table.matrix.clone()
    deaf = {tensor.name: quantized.codes for tensor, quantized in quantize_layers(model, plain, calibration)}
    heard = {tensor.name: (tensor, quantized) for tensor, quantized in quantize_layers(model, plan, calibration)}
    assert torch.equal(table.matrix, before)
    tensor, quantized = heard.pop(table.name)
    with torch.no_grad():
        table.matrix.copy_(quantized.dequantize(tensor))
    again = {tensor.name: quantized.codes for tensor, quantized in quantize_layers(model, plain, calibration)}
    assert all(torch.equal(quantized.codes, again[name]) for name, (_, quantized) in heard.items())
    assert not all(torch.equal(codes, again[name]) for name, codes in deaf.items())


@pytest.mark.parametrize("most_bytes", [None, 1], ids=["whole", "offloaded"])
def test_a_block_is_afterwards_what_it_was(most_bytes, tmp_path):
    """Whether it lies in memory, is fetched for rounding, or is already there because someone else needs it."""
    model = load(find_model(save_tiny("llama", tmp_path)), device="cpu", most_bytes=most_bytes)
    layers = [linear for linear in model.anatomy.linears if linear.block == 1]
    before = [layer.matrix.detach().clone() for layer in layers]

    def change_and_check():
        with _block_for_rounding(model, 1, layers), torch.no_grad():
            for layer in layers:
                layer.matrix.zero_()
        for layer, matrix in zip(layers, before, strict=True):
            assert torch.equal(layer.matrix, matrix)

    change_and_check()
    with model.present(1):
        change_and_check()
