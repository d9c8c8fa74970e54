import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from scipy import stats

from laaciq.errors import BrokenModel
from laaciq.models import ModelFolder, find_model
from laaciq.profiling.moments import LargestMagnitudes, Moments, flat_pieces, top_count
from laaciq.profiling.weights import (
    WeightStatistics,
    magnitude_pattern,
    pooled_moments,
    scan_weights,
    tensor_statistics,
)
from tests.tiny import save_tiny

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@st.composite
def tensors(draw, dtypes=DTYPES):
    """Heavy tails, means far from zero, constants, single elements, transposes and slices with gaps."""
    shape = draw(st.lists(st.integers(1, 12), min_size=1, max_size=3))
    random = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    values = torch.randn(shape, generator=random, dtype=torch.float64) ** draw(st.sampled_from([0, 1, 3, 7]))
    values = 10.0 ** draw(st.integers(-2, 1)) * (values + draw(st.sampled_from([0, 0, 1, -1e3, 1e7])))
    dtype = draw(st.sampled_from(dtypes))
    tensor = (values.clamp(-6e4, 6e4) if dtype == torch.float16 else values).to(dtype)
    layouts = [tensor, tensor.mT if tensor.ndim > 1 else tensor, tensor[..., ::2], tensor.expand(2, *shape)]
    return draw(st.sampled_from(layouts))


def exact(tensor):
    """Mean, variance and κ + 3 in rational numbers."""
    values = [Fraction(value) for value in tensor.double().flatten().tolist()]
    mean = sum(values) / len(values)
    second, fourth = (sum((value - mean) ** k for value in values) / len(values) for k in (2, 4))
    return mean, second, fourth / second**2 if second else 3


def assert_exact(moments, tensor):
    mean, variance, kurtosis = exact(tensor)
    assert moments.count == tensor.numel()
    assert moments.mean == pytest.approx(float(mean), rel=1e-14, abs=1e-14 * float(tensor.double().abs().max()))
    assert moments.sigma**2 == pytest.approx(float(variance), rel=1e-9)
    assert abs(moments.kurtosis + 3 - float(kurtosis)) < 1e-9 * float(kurtosis)


@settings(deadline=None)
@given(tensors())
def test_moments_are_exact(tensor):
    assert_exact(Moments.of(tensor), tensor)


@settings(deadline=None)
@given(st.lists(tensors(), min_size=1, max_size=5))
def test_pooled_moments_are_exact_across_dtypes(parts):
    together = torch.cat([part.double().reshape(-1) for part in parts])
    assert_exact(sum(map(Moments.of, parts), Moments()), together)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("draw", [stats.norm, stats.laplace, stats.uniform, stats.t(2), stats.lognorm(2)])
def test_moments_of_large_tensors_are_those_of_scipy(dtype, draw):
    """Several pieces; κ of a Student-t with two degrees of freedom is in the thousands."""
    tensor = torch.from_numpy(draw.rvs(size=(300, 501), random_state=1)).to(dtype)
    for view in (tensor, tensor.mT, tensor[1:, ::2]):
        kurtosis = stats.kurtosis(view.double().numpy(), axis=None)
        assert abs(Moments.of(view).kurtosis - kurtosis) < 1e-9 * (kurtosis + 3)
        assert abs(tensor_statistics("w", view).kurtosis - kurtosis) < 1e-9 * (kurtosis + 3)


@pytest.mark.parametrize("offset", [1e6, 1e12])
def test_a_mean_far_beyond_sigma_costs_nothing(offset):
    """At 10¹² deviations are multiples of 2⁻¹³: scipy is given the deviations, which float64 holds exactly."""
    deviations = (
        torch.randn(70_001, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) ** 3 * 64
    ).round()
    kurtosis = stats.kurtosis(deviations.numpy())
    assert abs(Moments.of(deviations + offset).kurtosis - kurtosis) < 1e-9 * (kurtosis + 3)


@pytest.mark.parametrize(
    ("draw", "kurtosis"), [(stats.norm(scale=0.02), 0.0), (stats.laplace, 3.0), (stats.uniform(-1, 2), -1.2)]
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_known_distributions_have_their_kurtosis(draw, kurtosis, dtype):
    tensor = torch.from_numpy(draw.rvs(size=(1000, 1000), random_state=0)).to(dtype)
    # The standard error of κ̂ at a million draws: √24/1000 for a Gaussian, some 0.04 for a Laplacian.
    assert tensor_statistics("w", tensor).kurtosis == pytest.approx(kurtosis, abs=0.15 if kurtosis > 0 else 0.02)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (300, 301)])
@pytest.mark.parametrize("value", [0.0, 0.1, -3e4])
def test_a_constant_tensor_has_no_spread_and_no_kurtosis(dtype, shape, value):
    result = tensor_statistics("w", torch.full(shape, value, dtype=dtype))
    assert (result.sigma, result.skewness, result.kurtosis, result.pattern) == (0, 0, 0, "dense")
    assert result.super_weight_ratio == (1 if value and result.count > 1 else None)
    count = math.prod(shape)
    for percent, share in result.top_shares.items():
        assert share == pytest.approx(top_count(count, float(percent)) / count if value else 0)


@settings(deadline=None)
@given(tensors([torch.float32, torch.float64]), st.sampled_from([0.01, 0.1, 1, 5, 10]))
def test_the_largest_magnitudes_are_those_of_a_sort(tensor, percent):
    magnitudes = np.sort(np.abs(tensor.double().numpy()), axis=None)[::-1]
    result = LargestMagnitudes.of(tensor)
    top = magnitudes[: math.ceil(len(magnitudes) * percent / 100)].sum()
    assert result.top_share(percent) == pytest.approx(top / magnitudes.sum() if magnitudes.any() else 0, rel=1e-12)
    second = magnitudes[1] if len(magnitudes) > 1 else 0
    assert result.super_weight_ratio == (magnitudes[0] / second if second else None)


def test_both_ways_agree_on_one_tensor():
    """16-bit weights by their histogram, the same weights in float32 and float64 by pieces."""
    random = torch.Generator().manual_seed(0)
    tensor = (torch.randn(700, 900, generator=random) ** 3).to(torch.bfloat16)
    narrow, *others = (tensor_statistics("w", tensor.to(dtype)) for dtype in (torch.bfloat16, *DTYPES[2:]))
    for other in others:
        assert narrow.top_shares == pytest.approx(other.top_shares, rel=1e-12)
        assert narrow.super_weight_ratio == other.super_weight_ratio
        for figure in ("mean", "sigma", "skewness", "kurtosis"):
            assert getattr(narrow, figure) == pytest.approx(getattr(other, figure), rel=1e-11)


@given(tensors(), st.integers(1, 50))
def test_pieces_hold_every_element_once(tensor, size):
    pieces = list(flat_pieces(tensor, size))
    assert all(piece.ndim == 1 and 0 < len(piece) <= size for piece in pieces)
    assert torch.equal(torch.cat(pieces).sort().values, tensor.reshape(-1).sort().values)


@pytest.mark.parametrize(("count", "percent", "top"), [(10_000, 0.07, 7), (10_000, 0.01, 1), (9, 10, 1), (11, 10, 2)])
def test_the_top_is_rounded_up_and_never_by_a_rounding_error(count, percent, top):
    assert top_count(count, percent) == top


def test_published_models_are_dense_and_a_planted_super_weight_is_sparse():
    """Top 0.01 % shares of GPT-2, OPT-125M, Pythia-160M and BERT as published with the theory."""
    assert {magnitude_pattern(share, 10**8) for share in (0.0026, 0.0062, 0.0024, 0.0013)} == {"dense"}
    tensor = 0.02 * torch.randn(200, 200, generator=torch.Generator().manual_seed(0))
    assert tensor_statistics("w", tensor).pattern == "dense"
    tensor[3, 5] = 200.0
    result = tensor_statistics("w", tensor)
    assert result.pattern == "sparse"
    assert result.super_weight_ratio > 1000
    # A quarter of a tensor of four weights is no outlier.
    assert tensor_statistics("w", torch.tensor([[1.0, 1.1], [0.9, 1.0]])).pattern == "dense"


@pytest.mark.parametrize("dtype", DTYPES)
def test_broken_weights_are_counted_by_tensor(dtype):
    tensor = torch.zeros(4, 5, dtype=dtype)
    tensor[0, 0], tensor[1, 1] = torch.nan, -torch.inf
    with pytest.raises(BrokenModel, match=r"layer\.weight: 2 of 20 weights are NaN"):
        tensor_statistics("layer.weight", tensor)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8])
def test_codes_are_no_weights(dtype):
    with pytest.raises(BrokenModel, match="from before quantization"):
        tensor_statistics("w", torch.zeros(2, 2).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES[:3])
def test_a_scan_describes_every_matrix_of_the_files(tmp_path, dtype):
    folder = find_model(save_tiny("llama", tmp_path / "model", dtype=dtype))
    tensors = load_file(folder.path / "model.safetensors")
    done = []
    result = scan_weights(folder, advance=done.append)
    assert set(result) == {name for name, tensor in tensors.items() if tensor.ndim > 1}
    assert sum(done) == sum(tensor.nbytes for tensor in tensors.values())
    for name, statistics in result.items():
        assert statistics == tensor_statistics(name, tensors[name])
        assert (statistics.name, statistics.shape) == (name, tuple(tensors[name].shape))
        assert WeightStatistics.model_validate_json(statistics.model_dump_json()) == statistics


def test_a_block_pools_its_linear_weights(tmp_path):
    """After a way through JSON, too."""
    folder = find_model(save_tiny("llama", tmp_path / "model", dtype=torch.bfloat16))
    tensors = load_file(folder.path / "model.safetensors")
    in_block = [name for name, tensor in tensors.items() if "layers.1." in name and tensor.ndim > 1]
    result = scan_weights(folder)
    read_back = [WeightStatistics.model_validate_json(result[name].model_dump_json()) for name in in_block]
    together = torch.cat([tensors[name].double().reshape(-1) for name in in_block]).numpy()
    pooled = pooled_moments(read_back)
    assert pooled.count == len(together)
    assert pooled.sigma == pytest.approx(together.std(), rel=1e-12)
    assert abs(pooled.kurtosis - stats.kurtosis(together)) < 1e-9 * (pooled.kurtosis + 3)


def test_a_scan_walks_through_shards_and_passes_over_what_are_no_weights(tmp_path, monkeypatch):
    monkeypatch.setattr("laaciq.models.safetensors_files._MAPPED_BYTES", 100)
    random = torch.Generator().manual_seed(0)
    shards = [
        {
            "a": torch.randn(9, 9, generator=random),
            "mask": torch.ones(3, 3, dtype=torch.bool),
            "none": torch.ones(0, 2),
        },
        {"b": torch.randn(2, 3, 4, generator=random).to(torch.float16), "bias": torch.ones(3), "c": torch.ones(5, 5)},
    ]
    for number, shard in enumerate(shards):
        save_file(shard, tmp_path / f"model-{number}.safetensors")
    assert list(scan_weights(ModelFolder("m", tmp_path))) == ["a", "b", "c"]


def test_a_file_cut_short_is_named(tmp_path):
    save_file({"a": torch.ones(50, 50)}, tmp_path / "model.safetensors")
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:-10])
    with pytest.raises(BrokenModel, match=r"model\.safetensors is broken or cut short"):
        scan_weights(ModelFolder("m", tmp_path))


class OnGpu(torch.Tensor):
    """Like a tensor on a GPU: numpy reads it, and what is computed from it, only after it was copied to the host."""

    def cpu(self):
        return self.as_subclass(torch.Tensor)

    def numpy(self):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_on_a_gpu_are_read_too(dtype):
    """Of GGUF models the loaded tensors are read, wherever they are."""
    weights = torch.randn(20, 30, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert tensor_statistics("w", weights.as_subclass(OnGpu)) == tensor_statistics("w", weights)
