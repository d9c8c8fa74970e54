"""Checks of a model's files before transformers reads them, and of the loaded model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from laaciq.engine.json_input import check_object, read_object
from laaciq.errors import BrokenModel
from laaciq.models.anatomy import is_linear
from laaciq.models.configuration import COPY_AGAIN, ModelConfiguration, require_blocks
from laaciq.models.folder import ModelFolder
from laaciq.models.gguf_header import read_gguf_header
from laaciq.models.safetensors_files import tensor_headers

_TOKENIZER = "tokenizer.json"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_MASKS = ("BOOL", "U8")
_OTHER_SETTINGS = ("special_tokens_map.json", "added_tokens.json", "generation_config.json", "chat_template.json")


def check_files(folder: ModelFolder) -> None:
    """Raise an error for files that are missing, outside the folder, contradictory, or that would make transformers build more than they
    hold. Of weights only headers are read.
    """
    configuration = folder.configuration
    if configuration is None:
        read_gguf_header(folder.weight_files[0])
        return
    _check_settings(folder.path)
    files = folder.weight_files
    if files[0].suffix == ".safetensors":
        _check_headers(folder, configuration)
    else:
        require_blocks(configuration.blocks, 0, folder.name)


def _check_headers(folder: ModelFolder, configuration: ModelConfiguration) -> None:
    headers = tensor_headers(folder)
    require_blocks(configuration.blocks, len(headers), folder.name)
    if configuration.quantization_config is not None:
        return
    for name, header in headers.items():
        # Masks and positions may be stored as integers, and GPT-2's mask is called a bias; weights and biases may not.
        is_code = not header.is_floating and (name.endswith(".weight") or header.dtype not in _MASKS)
        if is_code and name.endswith((".weight", ".bias")):
            raise COPY_AGAIN.of(
                folder.name,
                f"has {name} as {header.dtype}, and config.json does not say how these codes become weights",
            )


def _check_settings(folder: Path) -> None:
    """Check the settings that transformers reads beside config.json: JSON objects that name no file elsewhere."""
    if (folder / _TOKENIZER).exists():
        check_object(folder / _TOKENIZER, COPY_AGAIN, within=folder)
    for name in (*_OTHER_SETTINGS, _TOKENIZER_CONFIG):
        if (folder / name).exists():
            read_object(folder / name, COPY_AGAIN, within=folder)
    path = folder / _TOKENIZER_CONFIG
    settings = read_object(path, COPY_AGAIN, within=folder) if path.exists() else {}
    for entry in ("init_inputs", "fast_tokenizer_files"):
        if settings.get(entry):
            raise COPY_AGAIN.of(path, f"has {entry}, through which it could name files elsewhere")


def misfit(folder: ModelFolder, module: nn.Module) -> str | None:
    """The first tensor whose shape in the files differs from the model's, in words; None if there is none."""
    if folder.gguf_file is not None or folder.weight_files[0].suffix != ".safetensors":
        return None
    prefix = f"{getattr(module, 'base_model_prefix', '')}."
    stored = {name.removeprefix(prefix): header.shape for name, header in tensor_headers(folder).items()}
    for name, parameter in module.named_parameters():
        shape = stored.get(name.removeprefix(prefix))
        if shape is not None and shape != tuple(parameter.shape):
            return f"{name} has shape {shape}, but config.json gives {tuple(parameter.shape)}"
    return None


def check_loaded(module: Any, info: Mapping[str, Any], name: str, hint: str = "") -> None:
    """Raise an error for a model that its files do not fill, and for files with more than the model uses; `info` is transformers' loading
    report.
    """
    if missing := sorted(info["missing_keys"]):
        raise BrokenModel(
            f"{name} is half-written: {len(missing)} tensors are missing, {missing[0]} first; copy it again{hint}"
        )
    if unused := _unused(module, info["unexpected_keys"]):
        raise COPY_AGAIN.of(name, f"has {unused}, which is not part of the model that config.json describes")
    check_finite(module, name)


def _unused(module: nn.Module, unexpected: set[str]) -> str | None:
    """A tensor of another block or of a linear layer that the model does not use. Others are often harmless: old buffers, heads for other
    tasks.
    """
    if not unexpected:
        return None
    modules = dict(module.named_modules())
    lists = {path: len(part) for path, part in modules.items() if isinstance(part, nn.ModuleList)}
    for name in sorted(unexpected):
        if is_linear(modules.get(name.rpartition(".")[0], module)):
            return name
        for path, length in lists.items():
            number = name.removeprefix(f"{path}.").partition(".")[0]
            if name.startswith(f"{path}.") and number.isdecimal() and int(number) >= length:
                return name
    return None


def check_finite(module: torch.nn.Module, name: str) -> None:
    for tensor_name, parameter in module.named_parameters():
        # Weights of an offloaded block that are elsewhere were checked there.
        if parameter.is_meta or not parameter.is_floating_point() or not parameter.numel():
            continue
        # One pass without copies, 20 times as fast as `isfinite` of every weight: NaN is the minimum and the maximum.
        if not torch.stack(torch.aminmax(parameter.detach())).isfinite().all():
            raise BrokenModel(f"{name} has NaN or infinite weights in {tensor_name}: the checkpoint is damaged")
