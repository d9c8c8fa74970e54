"""The device and the type of numbers in which models compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from laaciq.engine.bfloat16 import cpu_multiplies_bfloat16
from laaciq.errors import BadOption
from laaciq.models.safetensors_files import tensor_headers

if TYPE_CHECKING:
    from laaciq.models.loading import LanguageModel

# In the words of safetensors.
_TYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64}


def pick_device(device: str) -> torch.device:
    if device not in ("auto", "cpu", "cuda"):
        raise BadOption(f"unknown device {device!r}: give auto, cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise BadOption("no CUDA device here: give --device cpu or auto")
    return torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")


def named_dtype(name: str) -> torch.dtype | None:
    """The type of this name; None for `auto`."""
    return None if name == "auto" else getattr(torch, name)


def default_dtype(place: torch.device) -> torch.dtype | str:
    """In which a model computes: `auto` is the type of the checkpoint."""
    return torch.float32 if place.type == "cpu" else "auto"


def device_kind(place: torch.device) -> str:
    """Another kind of processor adds floats in another order."""
    if place.type == "cuda":
        return torch.cuda.get_device_name(place)
    bfloat16 = " with bfloat16" if cpu_multiplies_bfloat16() else ""
    return f"{place.type}, {torch.backends.cpu.get_cpu_capability()}{bfloat16}"


def computing_dtype(skeleton: LanguageModel, place: torch.device, dtype: torch.dtype | None = None) -> torch.dtype:
    """In which a model will compute, before its weights are loaded: `dtype`, or else the default. Where the configuration names no type,
    transformers takes that of the first tensor.
    """
    chosen = dtype or default_dtype(place)
    if isinstance(chosen, torch.dtype):
        return chosen
    folder = skeleton.folder
    if skeleton.module.config.dtype is not None or folder.gguf_file is not None:
        return skeleton.dtype
    if folder.quantization is not None:
        return torch.float16
    if folder.weight_files[0].suffix != ".safetensors":
        return skeleton.dtype
    stored = (_TYPES.get(header.dtype) for header in tensor_headers(folder).values())
    return next((known for known in stored if known is not None), skeleton.dtype)
