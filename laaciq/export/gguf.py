"""A checkpoint as a GGUF file, for llama.cpp and for transformers: our codes in blocks where a block type holds them, else 16 bits."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict
from transformers import AutoConfig, AutoTokenizer

from laaciq.errors import BrokenModel
from laaciq.export.gguf_architecture import GgufArchitecture, import_gguf, tensor_names
from laaciq.export.gguf_blocks import Blocks, to_blocks, to_halves
from laaciq.export.gguf_vocabulary import describe_vocabulary
from laaciq.models import ModelFolder, stream_tensors
from laaciq.options import FULL_BITS
from laaciq.planning import Plan, TensorPlan
from laaciq.quantization import is_checkpoint, read_plan
from laaciq.quantization.checkpoint import check_parts, layer_name
from laaciq.quantization.grid import Grid, QuantizedMatrix
from laaciq.quantization.stored import part_shapes, read_stored

FILE = "model.gguf"


class _Result(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class GgufTensor(_Result):
    """How one tensor is carried: its block type, and bits a weight in the checkpoint and in the file, all counted.

    `error` is the largest difference from what the checkpoint means, over the tensor's largest weight; 0 is exact. It is measured on what the
    gguf library reads out of the bytes. `folded` says what had no place in blocks, so that weights are written out in 16 bits; `left_out` what
    the file lacks.
    """

    name: str
    gguf_name: str
    type: str
    weights: int
    bits_before: float
    bits_after: float
    error: float
    folded: str | None = None
    left_out: str | None = None

    @property
    def exact(self) -> bool:
        return self.error == 0

    @property
    def widened(self) -> bool:
        """Does it take more than in the checkpoint, with nothing folded?"""
        return self.folded is None and self.bits_after > self.bits_before


class GgufExport(_Result):
    """What was written. `tensors` has the matrices; vectors are in 32 bits, exactly."""

    file: str
    architecture: str
    tensors: list[GgufTensor]

    @property
    def types(self) -> dict[str, int]:
        """Number of matrices by type."""
        return dict(Counter(tensor.type for tensor in self.tensors))

    @property
    def exact(self) -> bool:
        """Does every weight mean what it means in the checkpoint?"""
        return all(tensor.exact for tensor in self.tensors)

    @property
    def bits_before(self) -> float:
        return _mean([(t.bits_before, t.weights) for t in self.tensors])

    @property
    def bits_after(self) -> float:
        return _mean([(t.bits_after, t.weights) for t in self.tensors])


def write_gguf(checkpoint: Path, out: Path) -> GgufExport:
    """Write `out`/model.gguf, whole or not at all. Language tables stay behind: the file has the shared scales."""
    gguf = import_gguf()
    if not is_checkpoint(checkpoint):
        raise BrokenModel(f"{checkpoint} is no laaciq checkpoint: make one with 'laaciq quantize'")
    plan = read_plan(checkpoint)
    architecture = GgufArchitecture(AutoConfig.from_pretrained(checkpoint))
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    translate = tensor_names(architecture.name, architecture.config.num_hidden_layers)
    out.mkdir(parents=True, exist_ok=True)
    partial = out / f".partial-{FILE}"
    # Tensors wait in a temporary file until all are known: the file starts with a table of them.
    writer = gguf.GGUFWriter(partial, architecture.name, use_temp_file=True)
    carried = []
    try:
        writer.add_type(gguf.GGUFType.MODEL)
        writer.add_name(checkpoint.resolve().name)
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        architecture.describe(writer)
        describe_vocabulary(writer, tokenizer, architecture.config.vocab_size)
        for name, stored in _stored(checkpoint, plan):
            order = architecture.row_order(name)
            if isinstance(stored, torch.Tensor) and stored.ndim == 1:
                vector = stored.float() if order is None else stored.float()[order]
                writer.add_tensor(translate(name), vector.numpy())
                continue
            data, report = _carry(name, stored, plan, order, gguf)
            writer.add_tensor(translate(name), data.data, raw_dtype=gguf.GGMLQuantizationType[data.type])
            carried.append(GgufTensor(gguf_name=translate(name), **report))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        os.replace(partial, out / FILE)
    except BaseException:
        writer.close()
        partial.unlink(missing_ok=True)
        raise
    return GgufExport(file=str(out / FILE), architecture=architecture.name, tensors=carried)


def _stored(checkpoint: Path, plan: Plan) -> Iterator[tuple[str, torch.Tensor | QuantizedMatrix]]:
    """Every tensor of a checkpoint under the model's own name, one at a time."""
    planned = {layer_name(tensor): tensor for tensor in plan.tensors if tensor.quantized}
    pending: dict[str, dict[str, torch.Tensor]] = {}
    for name, value in stream_tensors(ModelFolder(str(checkpoint), checkpoint)):
        layer, _, part = name.rpartition(".")
        if layer not in planned or part not in part_shapes(planned[layer]):
            yield name, value
            continue
        tensor, parts = planned[layer], pending.setdefault(layer, {})
        parts[part] = value
        if len(parts) == len(part_shapes(tensor)):
            check_parts(parts, tensor)
            del planned[layer]
            yield tensor.name, read_stored(pending.pop(layer), tensor)
    if planned:
        raise BrokenModel(f"{checkpoint} is half-written: it lacks tensors of {next(iter(planned))}; quantize again")


def _carry(
    name: str, stored: torch.Tensor | QuantizedMatrix, plan: Plan, order: torch.Tensor | None, gguf: Any
) -> tuple[Blocks, dict[str, Any]]:
    """One matrix in the type that holds it, its rows in GGUF's order, and what there is to report of it."""
    folded = left_out = None
    before = float(FULL_BITS)
    if isinstance(stored, torch.Tensor):
        meant = (stored if order is None else stored[order]).float().numpy()
        data = to_halves(meant)
    else:
        tensor = plan[name]
        before = tensor.stored_bits / tensor.weights
        meant = stored.dequantize(tensor).numpy()
        meant = meant if order is None else meant[order.numpy()]
        if tensor.tables:
            left_out = f"scales of {tensor.tables} clusters of languages"
        blocks = _without_blocks(tensor) or to_blocks(_reordered(stored, tensor, order), tensor)
        folded = blocks if isinstance(blocks, str) else None
        data = to_halves(meant) if isinstance(blocks, str) else blocks
    read = gguf.quants.dequantize(data.data, gguf.GGMLQuantizationType[data.type])
    error = float(np.abs(read - meant).max() / max(np.abs(meant).max(), 1e-30))
    return data, {
        "name": name,
        "type": data.type,
        "weights": meant.size,
        "bits_before": before,
        "bits_after": 8 * data.data.nbytes / meant.size,
        "error": error,
        "folded": folded,
        "left_out": left_out,
    }


def _without_blocks(plan: TensorPlan) -> str | None:
    """What a tensor has beside codes and scales, in words."""
    if plan.kept:
        return f"{plan.keep:g} % of its weights are kept in 16 bits"
    return f"it has a correction of rank {plan.rank}" if plan.rank else None


def _reordered(quantized: QuantizedMatrix, plan: TensorPlan, order: torch.Tensor | None) -> QuantizedMatrix:
    """Codes and shared scales, rows in GGUF's order."""
    grid = quantized.grid
    if order is None:
        return QuantizedMatrix(quantized.codes, grid)
    if plan.group_size != "tensor":
        grid = Grid(grid.scales[order], None if grid.zeros is None else grid.zeros[order])
    return QuantizedMatrix(quantized.codes[order], grid)


def _mean(shares: list[tuple[float, int]]) -> float:
    return sum(value * count for value, count in shares) / sum(count for _, count in shares)
