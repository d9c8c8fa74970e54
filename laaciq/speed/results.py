"""The request for a speed measurement, and its results."""

from __future__ import annotations

from laaciq.options import SpeedOptions
from laaciq.strict import StrictModel

ROUNDS = 5


class Request(StrictModel):
    """What the parent process sends to the child."""

    checkpoint: str
    against: str
    device: str
    options: SpeedOptions


class SpeedMeasurement(StrictModel):
    """One model. Speeds are tokens per second over the whole batch; those of decoding are None if it was not measured so, or if the model
    is masked.

    `weight_bytes` counts parameters and buffers in memory, and the tables that kernels hold beside them; `peak_bytes` is the peak
    allocation on CUDA for this model, None on a CPU.
    """

    model: str
    prefill: float
    decoding: float | None
    compiled_decoding: float | None
    weight_bytes: int
    peak_bytes: int | None


class Ratios(StrictModel):
    """Quantized over original: above 1 is faster, or larger."""

    prefill: float
    decoding: float | None
    compiled_decoding: float | None
    weight_bytes: float
    peak_bytes: float | None

    @classmethod
    def of(cls, original: SpeedMeasurement, quantized: SpeedMeasurement) -> Ratios:
        pairs = {name: (getattr(quantized, name), getattr(original, name)) for name in cls.model_fields}
        return cls.model_validate({name: None if None in pair else pair[0] / pair[1] for name, pair in pairs.items()})


class Kernels(StrictModel):
    """Number of quantized layers on Triton kernels, on torch's int4 kernel and on dequantized weights; `reasons` for the latter, each with
    its number of layers.

    With more than `few_tokens` tokens, a layer on Triton kernels dequantizes its weights for that product; None if there is no such layer.
    """

    triton: int
    int4: int
    dequantized: int
    reasons: dict[str, int]
    few_tokens: int | None


class Bench(StrictModel):
    """Speeds are medians of `rounds` after a warm-up. `kernels` is None if the checkpoint is not one of ours. `not_compiled` says why decoding
    was not measured compiled, by model, where it should have been.
    """

    options: SpeedOptions
    device: str
    dtype: str
    threads: int
    rounds: int
    original: SpeedMeasurement
    quantized: SpeedMeasurement
    ratios: Ratios
    kernels: Kernels | None
    not_compiled: dict[str, str]
