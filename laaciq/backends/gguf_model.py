"""Models as GGUF files without a tokenizer: enough for llama.cpp to quantize them and to run them on token ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from laaciq.errors import BadOption
from laaciq.models.gguf_architecture import GgufArchitecture, tensor_names
from laaciq.models.gguf_file import gguf_file, import_gguf

# Transformers' model types.
ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3", "gemma3_text")
_TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def names_in_gguf(model: Any) -> dict[str, str]:
    """The tensor of the file for every parameter."""
    kind = model.config.model_type
    if kind not in ARCHITECTURES:
        raise BadOption(f"llama.cpp's quantizer supports {', '.join(ARCHITECTURES)} models here, not {kind}")
    translate = tensor_names(kind, model.config.num_hidden_layers)
    return {name: translate(name) for name, _ in model.named_parameters()}


def write_gguf(model: Any, path: Path) -> None:
    """Matrices in the model's type, everything else in float32."""
    gguf = import_gguf()
    architecture, names = GgufArchitecture(model.config), names_in_gguf(model)
    with gguf_file(path, architecture.name) as writer:
        architecture.describe(writer)
        writer.add_tokenizer_model("none")
        for name, parameter in model.named_parameters():
            values = parameter.detach().float().cpu()
            if (rows := architecture.row_order(name)) is not None:
                values = values[rows]
            values = architecture.values(name, values)
            kind = gguf.GGMLQuantizationType[_TYPES[parameter.dtype] if parameter.dim() > 1 else "F32"]
            writer.add_tensor(names[name], gguf.quants.quantize(values.numpy(), kind), raw_dtype=kind)


def restored_rows(model: Any, name: str, values: torch.Tensor) -> torch.Tensor:
    """Rows of a tensor of the file in transformers' order."""
    rows = GgufArchitecture(model.config).row_order(name)
    return values if rows is None else values[rows.argsort()]
