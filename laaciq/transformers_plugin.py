"""Lets `AutoModelForCausalLM.from_pretrained` load our checkpoints: registered with transformers when both are imported.

It stands outside the rooms and imports them late, because it is itself imported while transformers still is.
"""

from __future__ import annotations

from typing import Any

from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from laaciq.options import CHECKPOINT_METHOD


class LaaciqConfig(QuantizationConfigMixin):
    """What config.json says of a checkpoint: the plan, and which parts are stored in bfloat16 instead of float16."""

    def __init__(self, plan: dict[str, Any], brain_floats: list[str], **other: Any) -> None:
        self.quant_method = CHECKPOINT_METHOD  # type: ignore[assignment]
        self.plan = plan
        self.brain_floats = brain_floats


class LaaciqQuantizer(HfQuantizer):
    """Puts a quantized layer in the place of every planned one before weights are read, and a `language` switch on the model after."""

    requires_calibration = True
    quantization_config: LaaciqConfig

    def _process_model_before_weight_loading(self, model: Any, **kwargs: Any) -> None:
        from laaciq.quantization.checkpoint import replace_layers
        from laaciq.quantization.plan import Plan

        replace_layers(model, Plan.model_validate(self.quantization_config.plan), self.quantization_config.brain_floats)

    def _process_model_after_weight_loading(self, model: Any, **kwargs: Any) -> Any:
        from laaciq.quantization.checkpoint import check_layers
        from laaciq.quantization.layers import QuantizedLinear
        from laaciq.quantization.plan import Plan
        from laaciq.quantization.switch import LanguageSwitch

        check_layers(model)
        for layer in model.modules():
            if isinstance(layer, QuantizedLinear):
                layer.prepare(model.dtype)
        model.language = LanguageSwitch(model, Plan.model_validate(self.quantization_config.plan))
        return model

    def is_serializable(self, *args: Any, **kwargs: Any) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        return False


def register(auto: Any) -> None:
    """Enter both classes in `transformers.quantizers.auto`, given as a module because it may still be importing itself."""
    auto.AUTO_QUANTIZATION_CONFIG_MAPPING[CHECKPOINT_METHOD] = LaaciqConfig
    auto.AUTO_QUANTIZER_MAPPING[CHECKPOINT_METHOD] = LaaciqQuantizer
