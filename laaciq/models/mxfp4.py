"""gpt-oss is published in MXFP4, 4-bit floats. transformers runs it from there if it finds kernels; here its weights are dequantized."""

from __future__ import annotations

from typing import Any


def want_plain_weights(config: Any) -> bool:
    """Ask transformers, through the configuration, for dequantized weights. False if the model is not in MXFP4."""
    settings = getattr(config, "quantization_config", None)
    if not isinstance(settings, dict) or settings.get("quant_method") != "mxfp4":
        return False
    config.quantization_config = settings | {"dequantize": True}
    return True
