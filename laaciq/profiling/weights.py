"""The statistics of every weight tensor of a checkpoint, exactly, in one pass over its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import torch

from laaciq.errors import BrokenModel
from laaciq.models import ModelFolder, stream_tensors
from laaciq.profiling import histogram
from laaciq.profiling.histogram import PatternHistogram
from laaciq.profiling.moments import LargestMagnitudes, Moments, top_count
from laaciq.strict import StrictModel

# Per cent of weights, largest first, whose share of the total magnitude is reported.
TOP_PERCENTS = ("0.01", "0.1", "1", "5", "10")
# The top 0.01 % of a Gaussian tensor hold 0.05 % of its magnitude, of models with dense outliers 0.13 to 0.62 %. Ten percent
# is beyond any of these: a few weights then carry the tensor, and keeping them in 16 bits costs nothing.
SPARSE_SHARE = 0.1


class WeightStatistics(StrictModel):
    """One tensor. Moments are the population's; σ, γ and κ = E[(W−μ)⁴]/σ⁴ − 3 are 0 where all weights are equal.

    `top_shares` maps p, in percent, to the share of the total magnitude that the largest p % of weights (rounded up) hold. `pattern` is
    sparse where the top 0.01 % hold more than a tenth of the magnitude beyond what as many weights of average size would (so that one
    weight of a small tensor does not count as an outlier for its share alone), else dense. `super_weight_ratio` is the largest |w| over
    the second largest, None where there is no second or it is 0.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    count: int
    mean: float
    sigma: float
    skewness: float
    kurtosis: float
    top_shares: dict[str, float]
    pattern: Literal["sparse", "dense"]
    super_weight_ratio: float | None

    @property
    def moments(self) -> Moments:
        """Back from the figures that follow from them, for pooling with other tensors."""
        m2 = self.count * self.sigma**2
        return Moments(
            self.count,
            self.mean,
            m2=m2,
            m3=self.skewness * m2 * self.sigma,
            m4=(self.kurtosis + 3) * m2 * self.sigma**2,
        )


def scan_weights(
    folder: ModelFolder, *, advance: Callable[[int], None] = lambda size: None
) -> dict[str, WeightStatistics]:
    """Statistics of every floating tensor of two or more dimensions, by its name in the checkpoint; norms, biases and buffers are skipped.

    Holds one tensor at a time. `advance` receives the size in bytes of every tensor, done or skipped; the sum is the size of the files
    without their headers.
    """
    statistics = {}
    for name, tensor in stream_tensors(folder):
        if tensor.is_floating_point() and tensor.ndim > 1 and tensor.numel():
            statistics[name] = tensor_statistics(name, tensor)
        advance(tensor.nbytes)
    return statistics


def tensor_statistics(name: str, tensor: torch.Tensor) -> WeightStatistics:
    """Statistics of one floating tensor that is not empty. They are computed by numpy, in host memory."""
    tensor = tensor.cpu()
    top: PatternHistogram | LargestMagnitudes
    try:
        if tensor.dtype in histogram.DTYPES:
            top = PatternHistogram.of(tensor)
            moments = top.moments
        else:
            moments = Moments.of(tensor)
            top = LargestMagnitudes.of(tensor)
    except BrokenModel as error:
        raise BrokenModel(f"{name}: {error}") from None
    shares = {percent: top.top_share(float(percent)) for percent in TOP_PERCENTS}
    return WeightStatistics(
        name=name,
        shape=tuple(tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
        count=moments.count,
        mean=moments.mean,
        sigma=moments.sigma,
        skewness=moments.skewness,
        kurtosis=moments.kurtosis,
        top_shares=shares,
        pattern=magnitude_pattern(shares["0.01"], moments.count),
        super_weight_ratio=top.super_weight_ratio,
    )


def magnitude_pattern(top_share: float, count: int) -> Literal["sparse", "dense"]:
    """The rule that `WeightStatistics` states; `top_share` is that of the top 0.01 % of `count` weights."""
    return "sparse" if top_share - top_count(count, 0.01) / count > SPARSE_SHARE else "dense"


def pooled_moments(tensors: Iterable[WeightStatistics]) -> Moments:
    """Mean, σ and κ over all weights of several tensors, such as κ_l over the linear weights of a block."""
    return sum((tensor.moments for tensor in tensors), Moments())
