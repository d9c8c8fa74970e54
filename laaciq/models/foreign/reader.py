"""A checkpoint of another library as plain tensors, layer by layer; nothing in it is executed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

from laaciq.errors import BrokenModel
from laaciq.models.folder import ModelFolder
from laaciq.models.foreign.awq import Awq
from laaciq.models.foreign.bitsandbytes import BitsAndBytes
from laaciq.models.foreign.compressed_tensors import CompressedTensors
from laaciq.models.foreign.gptq import Gptq
from laaciq.models.foreign.parts import REMEDY, Parts
from laaciq.models.safetensors_files import read_tensors, tensor_headers
from laaciq.options import CHECKPOINT_METHOD

# What transformers needs for the methods that it knows and we do not read ourselves, where the package has another name.
_LIBRARIES = {
    "quanto": "optimum-quanto",
    "higgs": "flute-kernel",
    "fbgemm_fp8": "fbgemm-gpu",
    "quark": "amd-quark",
    "spqr": "spqr_quant",
    "mxfp4": "kernels and triton",
}


class ForeignFormat(Protocol):
    """How one library stores a quantized layer: in tensors named by the layer and one of `quantized_parts` or `shared_parts`.

    Only quantized layers have `quantized_parts`. Other layers have `shared_parts` too. `claims_layers`: by the settings, some layer is
    quantized. `notes` tell the user what measuring the weights alone leaves out.
    """

    quantized_parts: tuple[str, ...]
    shared_parts: tuple[str, ...]
    claims_layers: bool
    notes: tuple[str, ...]

    def weights(self, parts: Parts) -> torch.Tensor: ...


def find_format(settings: Mapping[str, Any] | None) -> ForeignFormat | None:
    """By the `quantization_config` of config.json; None for no quantization, a checkpoint of ours, or one that transformers reads."""
    if settings is None:
        return None
    # The first checkpoints of bitsandbytes named no method.
    is_bitsandbytes = bool(settings.get("load_in_4bit") or settings.get("load_in_8bit"))
    method = settings.get("quant_method") or ("bitsandbytes" if is_bitsandbytes else None)
    match method:
        case "gptq":
            return Gptq(settings)
        case "awq":
            return Awq(settings)
        case "bitsandbytes":
            return BitsAndBytes(settings)
        case "compressed-tensors":
            return CompressedTensors(settings)
    if method != CHECKPOINT_METHOD and (not isinstance(method, str) or method not in AUTO_QUANTIZATION_CONFIG_MAPPING):
        raise BrokenModel(
            f"config.json has a quantization_config of the method {method!r}, which neither laaciq nor transformers knows: {REMEDY}"
        )
    return None


def missing_library(settings: Mapping[str, Any] | None) -> str:
    """A hint for the error that a model does not load: the library that transformers needs for a format that we do not read."""
    method = (settings or {}).get("quant_method")
    if not isinstance(method, str) or method == CHECKPOINT_METHOD:
        return ""
    return f"; it is quantized by {method}, which transformers reads with {_LIBRARIES.get(method, method)} installed"


def read_weights(
    folder: ModelFolder, form: ForeignFormat, skeleton: nn.Module, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """All tensors, dequantized, under the names of a model that was never quantized. `skeleton` is that model, without memory for weights.

    Scales lie far from their codes in a file. The tensors of one layer are read together, so that only one layer at a time is in memory twice.
    """
    where = {name: header.file for name, header in tensor_headers(folder).items()}
    layers = _layers(where, form)
    if form.claims_layers and all(names == [layer] for layer, names in layers.items()):
        raise BrokenModel(
            f"{folder.name} claims in config.json that its weights are quantized, and its files hold none that are: "
            "remove quantization_config if the weights are plain, or copy the quantized ones"
        )
    prefix = f"{getattr(skeleton, 'base_model_prefix', '')}."
    parameters = {name.removeprefix(prefix) for name, _ in skeleton.named_parameters()}
    plain: dict[str, torch.Tensor] = {}
    for layer, names in layers.items():
        tensors = read_tensors(where, names)
        if names == [layer]:
            plain[layer] = _plain(layer, tensors[layer], dtype, is_parameter=layer.removeprefix(prefix) in parameters)
            continue
        module = _module(skeleton, layer)
        stored = {name.removeprefix(f"{layer}."): tensor for name, tensor in tensors.items()}
        weights = form.weights(Parts(layer, stored, nn.Linear if module is None else type(module)))
        plain[f"{layer}.weight"] = _fitting(weights, module, layer).to(dtype).contiguous()
    return plain


def _layers(names: Iterable[str], form: ForeignFormat) -> dict[str, list[str]]:
    """Names of tensors by quantized layer; a tensor of no quantized layer is listed by its name."""
    names = list(names)
    quantized = {layer for name in names if (layer := _layer_of(name, form.quantized_parts))}
    layers: dict[str, list[str]] = {}
    for name in names:
        layer = _layer_of(name, form.quantized_parts) or _layer_of(name, form.shared_parts)
        layers.setdefault(layer if layer in quantized else name, []).append(name)
    return layers


def _layer_of(name: str, parts: Iterable[str]) -> str:
    return next((name.removesuffix(f".{part}") for part in parts if name.endswith(f".{part}")), "")


def _module(skeleton: nn.Module, layer: str) -> nn.Module | None:
    """None where transformers stores the layer otherwise than the checkpoint (experts); with or without the base model's name in front."""
    prefix = f"{getattr(skeleton, 'base_model_prefix', '')}."
    for name in (layer, f"{prefix}{layer}", layer.removeprefix(prefix)):
        try:
            return skeleton.get_submodule(name)
        except AttributeError:
            continue
    return None


def _fitting(weights: torch.Tensor, module: nn.Module | None, layer: str) -> torch.Tensor:
    """As the module holds it: GPT-2's is (inputs, outputs)."""
    if module is None:
        return weights
    weights = weights.t() if isinstance(module, Conv1D) else weights
    expected = module.get_parameter("weight").shape
    if weights.shape != expected:
        raise BrokenModel(f"{layer} unpacks to {tuple(weights.shape)}, the model needs {tuple(expected)}: {REMEDY}")
    return weights


def _plain(name: str, tensor: torch.Tensor, dtype: torch.dtype, *, is_parameter: bool) -> torch.Tensor:
    if tensor.is_floating_point():
        return tensor.to(dtype, copy=True)
    if is_parameter or name.endswith(".weight"):
        raise BrokenModel(f"{name} holds {tensor.dtype} codes, and its scales are missing: {REMEDY}")
    return tensor.clone()
