"""Models that are published in small floats: gpt-oss in MXFP4, DeepSeek-V3 in FP8. transformers would run them from there on a GPU; here their
weights are dequantized, because they are quantized again.
"""

from __future__ import annotations

from typing import Any

_SMALL_FLOATS = ("mxfp4", "fp8")


def want_plain_weights(config: Any) -> bool:
    """Ask transformers, through the configuration, for dequantized weights. False if the model is not in small floats."""
    settings = getattr(config, "quantization_config", None)
    if not isinstance(settings, dict) or settings.get("quant_method") not in _SMALL_FLOATS:
        return False
    config.quantization_config = settings | {"dequantize": True}
    return True
