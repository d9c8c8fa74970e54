"""Lets transformers load our checkpoints: registers a quantizer once both packages are imported.

It imports our other modules late, because transformers may still be importing itself when this module is imported.
"""

from __future__ import annotations

from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any

from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from laaciq.options import CHECKPOINT_METHOD

if TYPE_CHECKING:
    from laaciq.quantization.checkpoint import Section


class LaaciqConfig(QuantizationConfigMixin):
    """`quantization_config` of config.json, as it stands there."""

    def __init__(self, plan: object = None, brain_floats: object = None, **other: Any) -> None:
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

    def _process_model_before_weight_loading(
        self, model: Any, checkpoint_files: list[str] | None = None, **kwargs: Any
    ) -> None:
        from laaciq.models.experts import split_experts
        from laaciq.models.safetensors_files import headers_of
        from laaciq.quantization.checkpoint import replace_layers
        from laaciq.quantization.checkpoint_checks import check_headers

        section = self._section()
        split_experts(model)
        replace_layers(model, section.plan, section.brain_floats)
        if checkpoint_files:
            headers = headers_of(map(Path, checkpoint_files))
            parameters = [(name, tuple(parameter.shape)) for name, parameter in model.named_parameters()]
            # transformers reports what is missing, and knows what is tied.
            check_headers(headers, section.plan, set(section.brain_floats), parameters, complete=False)

    def update_weight_conversions(self, weight_conversions: list[Any], model: Any) -> list[Any]:
        """None: tensors are stored under the names of the model's modules. Those of transformers would fuse experts."""
        return []

    def _process_model_after_weight_loading(self, model: Any, **kwargs: Any) -> Any:
        from laaciq.quantization.checkpoint import check_layers
        from laaciq.quantization.layers import QuantizedLinear
        from laaciq.quantization.switch import LanguageSwitch

        check_layers(model)
        for layer in model.modules():
            if isinstance(layer, QuantizedLinear):
                layer.prepare(model.dtype)
        model.language = LanguageSwitch(model, self._section().plan)
        model.save_pretrained = MethodType(_save_pretrained, model)
        return model

    def _section(self) -> Section:
        from laaciq.quantization.checkpoint import parse_quantization

        settings = self.quantization_config
        stated = {"quant_method": CHECKPOINT_METHOD, "plan": settings.plan, "brain_floats": settings.brain_floats}
        return parse_quantization(stated, "config.json")

    def is_serializable(self, *args: Any, **kwargs: Any) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        return False

    @property
    def is_compileable(self) -> bool:
        """`generate(cache_implementation="static")` compiles decoding."""
        return True


def _save_pretrained(model: Any, save_directory: str | Path, *args: Any, **options: Any) -> None:
    """As the method of transformers, which drops the entry that keeps it from loading the checkpoint without this package."""
    from laaciq.quantization.checkpoint import require_package

    type(model).save_pretrained(model, save_directory, *args, **options)
    require_package(Path(save_directory))


def register(auto: Any) -> None:
    """Register both classes in `transformers.quantizers.auto`, which is given as a module because it may still be importing itself."""
    auto.AUTO_QUANTIZATION_CONFIG_MAPPING[CHECKPOINT_METHOD] = LaaciqConfig
    auto.AUTO_QUANTIZER_MAPPING[CHECKPOINT_METHOD] = LaaciqQuantizer
