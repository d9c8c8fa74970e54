from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import laaciq
from laaciq.models import find_model, load
from laaciq.options import MeasureOptions
from laaciq.profiling.activations import prepare_whole
from laaciq.quantization import Calibration, compensation
from laaciq.quantization.blockwise import BlockStream
from laaciq.quantization.calibration import TensorCalibration
from laaciq.quantization.compensation import SHARE, SWEEPS, compensated_weights, refine_codes
from laaciq.quantization.hessian import Hessian
from laaciq.quantization.matrices import quantize_matrix
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.stacked import StackedMatrices
from tests.tiny import save_tiny

FEW = ["eng", "swa"]
OUTPUTS, INPUTS = 5, 24


def case(seed, **plan):
    random = torch.Generator().manual_seed(seed)
    matrix = torch.randn(OUTPUTS, INPUTS, generator=random).to(torch.bfloat16).float()
    mixed = torch.randn(40, INPUTS, generator=random) @ torch.randn(INPUTS, INPUTS, generator=random)
    settings = {"bits": 3, "group_size": 8, "symmetric": True, "clip": "effective", "rounding": "second-order", **plan}
    return matrix, TensorPlan(name="w", shape=tuple(matrix.shape), **settings), mixed.T @ mixed / 40


def known(moments):
    return TensorCalibration(moments.diagonal()[None] / moments.diagonal().mean(), effective_kurtosis=0.0)


def errors(values, matrix, moments):
    difference = (values - matrix).double()
    return torch.einsum("ri,ij,rj->r", difference, Hessian(moments).damped.double(), difference)


def enumerated(matrix, quantized, plan, moments):
    """Every code of an input tried in the place of its own, the others as they are now."""
    codes = quantized.codes.clone()

    def value(codes):
        return errors(type(quantized)(codes, quantized.grid, quantized.kept).dequantize(plan), matrix, moments)

    for _ in range(SWEEPS):
        for i in range(INPUTS):
            tried = []
            for code in range(2**plan.bits - plan.symmetric):
                other = codes.clone()
                other[:, i] = code
                tried.append(value(other))
            codes[:, i] = torch.stack(tried).argmin(0).to(torch.uint8)
    return value(codes)


@given(st.integers(0, 300), st.sampled_from([8, "channel", "tensor"]), st.booleans())
def test_descent_equals_trying_every_code(seed, group_size, symmetric):
    matrix, plan, moments = case(seed, group_size=group_size, symmetric=symmetric)
    before = quantize_matrix(matrix, plan, known(moments), Hessian(moments))
    after = quantize_matrix(
        matrix, plan.model_copy(update={"rounding": "compensated"}), known(moments), Hessian(moments)
    )
    result = errors(after.dequantize(plan), matrix, moments)
    # Two codes that are as good as one another may go either way, in one of a hundred rows at most.
    same = torch.isclose(result, enumerated(matrix, before, plan, moments), rtol=1e-3)
    assert same.float().mean() >= 0.8
    start = errors(before.dequantize(plan), matrix, moments)
    assert (result <= start * (1 + 1e-4) + 1e-6).all()


@given(st.integers(0, 300), st.floats(0.5, 10))
def test_kept_weights_and_groups_of_zeros_stay(seed, keep):
    matrix, plan, moments = case(seed, keep=keep, rounding="compensated")
    matrix[:, 8:16] = 0
    simulated = quantize_matrix(matrix, plan, known(moments), Hessian(moments)).dequantize(plan)
    chosen = matrix.abs().flatten().topk(plan.kept).indices if plan.kept else torch.zeros(0, dtype=torch.int64)
    assert torch.equal(simulated.flatten()[chosen], matrix.flatten()[chosen])
    assert not simulated[:, 8:16].any()


@pytest.mark.parametrize("inputs", [1, compensation.BLOCK, compensation.BLOCK + 3])
def test_blocks_of_inputs_are_only_for_speed(inputs, monkeypatch):
    random = torch.Generator().manual_seed(0)
    matrix, rows = torch.randn(7, inputs, generator=random), torch.randn(400, inputs, generator=random)
    plan = TensorPlan(name="w", shape=(7, inputs), bits=3, group_size=32, symmetric=False, clip="mse")
    moments = rows.T @ rows / 400
    nearest = quantize_matrix(matrix, plan)
    result = []
    for block in (compensation.BLOCK, 1):
        monkeypatch.setattr(compensation, "BLOCK", block)
        codes = refine_codes(StackedMatrices.of(matrix, nearest.grid, plan), nearest.codes.T, Hessian(moments)).T
        result.append(errors(type(nearest)(codes, nearest.grid).dequantize(plan), matrix, moments))
    torch.testing.assert_close(*result, rtol=1e-2, atol=1e-6)


def test_what_makes_up_for_lost_inputs_is_the_least_squares_answer():
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(500, 6, generator=random)
    became = inputs + 0.3 * torch.randn(500, 6, generator=random) @ torch.randn(6, 6, generator=random)
    matrix = torch.randn(4, 6, generator=random)
    moments = became.T @ became / 500
    # Ridge regression of what the original puts out: as if there were six more tokens, one for each input, that want the weights as they are.
    ridge = (Hessian(moments).damped - moments).diagonal().sqrt().diag()
    wide = torch.cat([became / 500**0.5, ridge])
    wanted = torch.cat([inputs @ matrix.T / 500**0.5, ridge @ matrix.T])
    whole = torch.linalg.lstsq(wide, wanted).solution.T
    result = compensated_weights(matrix, Hessian(moments), inputs.T @ became / 500)
    torch.testing.assert_close(result, matrix + SHARE * (whole - matrix), rtol=1e-4, atol=1e-4)
    assert torch.equal(compensated_weights(matrix, Hessian(moments), moments), matrix)


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "mt5"])
def test_crossed_moments_are_of_the_original_s_inputs_and_those_that_they_became(architecture, tmp_path):
    model = load(find_model(save_tiny(architecture, tmp_path)), device="cpu")
    texts, options = laaciq.read_split("builtin").calibration.select(FEW).spread(2), MeasureOptions()
    stream = BlockStream(model, Calibration(None, texts, options), dict.fromkeys(FEW, 0.5), beside_original=True)
    last = len(model.anatomy.block_names) - 1
    (linear, *_) = [layer for layer in model.anatomy.linears if layer.block == last]
    earlier = [layer for layer in model.anatomy.linears if layer.block == last - 1]
    before = {code: inputs_of(model, linear, texts[code], options) for code in FEW}
    for index in range(last):
        result = stream.second_moments(index, [layer for layer in model.anatomy.linears if layer.block == index])
        assert all(layer.cross is None for layer in result.values()) == (index in stream.batches[0].calls.entering)
        if index == last - 1:
            with torch.no_grad():
                for layer in earlier:
                    layer.matrix.mul_(1.5)
        stream.advance(index)
    after = {code: inputs_of(model, linear, texts[code], options) for code in FEW}
    (moments,) = stream.second_moments(last, [linear]).values()
    crossed = sum(before[code].T @ after[code] / len(after[code]) for code in FEW) / 2
    expected_moments = sum(after[code].T @ after[code] / len(after[code]) for code in FEW) / 2
    close = partial(torch.testing.assert_close, rtol=1e-3)
    close(moments.moments, expected_moments, atol=1e-4 * float(expected_moments.abs().max()))
    close(moments.cross, crossed, atol=1e-4 * float(expected_moments.abs().max()))
    assert (crossed - expected_moments).abs().max() > 0.01 * expected_moments.abs().max()


def inputs_of(model, linear, passages, options):
    """Of a whole pass, token by token."""
    seen = []
    handle = linear.module.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0][0]))
    for passage in prepare_whole(model, passages, options):
        for s in passage.sequences:
            arguments = {"input_ids": torch.tensor([s.inputs])}
            if model.kind == "encoder-decoder":
                arguments["decoder_input_ids"] = torch.tensor([s.decoder])
            model.module(**arguments)
    handle.remove()
    return torch.cat(seen).detach()
