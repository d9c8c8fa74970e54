"""Lets transformers load our checkpoints: registers a quantizer once both packages are imported.

It imports our other modules late, because transformers may still be importing itself when this module is imported.
"""

from __future__ import annotations

from pathlib import Path
from types import MethodType
from typing import Any

from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from laaciq.options import CHECKPOINT_METHOD


class LaaciqConfig(QuantizationConfigMixin):
    """`quantization_config` of config.json: the plan, and the names of tensors that are stored in bfloat16 instead of float16."""

    def __init__(self, plan: dict[str, Any], brain_floats: list[str], **other: Any) -> None:
        self.quant_method = CHECKPOINT_METHOD  # type: ignore[assignment]
        self.plan = plan
        self.brain_floats = brain_floats


class LaaciqQuantizer(HfQuantizer):
    """Replaces every planned layer by a quantized one before weights are read, and adds the `language` switch to the model afterwards."""

    requires_calibration = True
    quantization_config: LaaciqConfig

    def update_attn_implementation(self, config: Any) -> Any:
        """Called with the model's configuration before transformers looks for files: allow it to find the weights."""
        from laaciq.quantization.checkpoint import WEIGHTS_FILE

        if hasattr(config, WEIGHTS_FILE):
            delattr(config, WEIGHTS_FILE)
        return config

    # Earlier versions of transformers 5 call this method at the same point.
    update_tp_plan = update_attn_implementation

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
        model.save_pretrained = MethodType(_save_pretrained, model)
        return model

    def is_serializable(self, *args: Any, **kwargs: Any) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        return False


def _save_pretrained(model: Any, save_directory: str | Path, *args: Any, **options: Any) -> None:
    """As the method of transformers, which drops the entry that keeps it from loading the checkpoint without this package."""
    from laaciq.quantization.checkpoint import require_package

    type(model).save_pretrained(model, save_directory, *args, **options)
    require_package(Path(save_directory))


def register(auto: Any) -> None:
    """Register both classes in `transformers.quantizers.auto`, which is given as a module because it may still be importing itself."""
    auto.AUTO_QUANTIZATION_CONFIG_MAPPING[CHECKPOINT_METHOD] = LaaciqConfig
    auto.AUTO_QUANTIZER_MAPPING[CHECKPOINT_METHOD] = LaaciqQuantizer
