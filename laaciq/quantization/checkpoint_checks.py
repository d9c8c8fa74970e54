"""What a checkpoint must hold by its plan: names, shapes and types from the headers of its files, values when they are read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import torch

from laaciq.errors import BrokenModel
from laaciq.models.safetensors_files import TensorHeader
from laaciq.quantization.plan import Plan, TensorPlan
from laaciq.quantization.stored import part_shapes

_DAMAGED = "the checkpoint is damaged; quantize again"
# As safetensors names them. 16-bit floats may be of either type.
_NAMES = {torch.uint8: "U8", torch.uint16: "U16", torch.int32: "I32", torch.float16: "F16", torch.bfloat16: "BF16"}
_FLOATS = (torch.float16, torch.bfloat16)


def layer_name(plan: TensorPlan) -> str:
    return plan.name.removesuffix(".weight")


def check_headers(
    headers: Mapping[str, TensorHeader],
    plan: Plan,
    brain_floats: Collection[str],
    others: Iterable[tuple[str, tuple[int, ...]]],
    *,
    complete: bool = True,
) -> None:
    """Every part of every quantized matrix, and all `others`: parameters of the model by name and shape, of which those that the plan
    quantizes are left aside. `complete`: none of them may be missing."""
    quantized = {tensor.name for tensor in plan.tensors if tensor.quantized}
    for tensor in plan.tensors:
        for part, (shape, dtype) in part_shapes(tensor).items() if tensor.quantized else ():
            name = f"{layer_name(tensor)}.{part}"
            kind = torch.bfloat16 if name in brain_floats else dtype
            _check_header(name, headers.get(name), shape, _NAMES[kind])
    for name, shape in others:
        if name not in quantized and (complete or name in headers):
            _check_header(name, headers.get(name), shape, None)


def _check_header(name: str, header: TensorHeader | None, shape: tuple[int, ...], dtype: str | None) -> None:
    """Any floating type where `dtype` is None."""
    if header is None:
        raise BrokenModel(f"the checkpoint is half-written: {name} is missing; quantize again")
    if header.shape != shape:
        raise BrokenModel(f"{name} has shape {header.shape}, expected {shape}: {_DAMAGED}")
    if dtype not in (None, header.dtype) or (dtype is None and not header.is_floating):
        raise BrokenModel(f"{name} is stored as {header.dtype}, expected {dtype or 'floating point'}: {_DAMAGED}")


def check_parts(parts: Mapping[str, torch.Tensor], plan: TensorPlan) -> None:
    """Shapes and types as the plan says, scales that are numbers, and kept weights that lie within the matrix."""
    for name, (shape, dtype) in part_shapes(plan).items():
        part = parts[name]
        if tuple(part.shape) != shape:
            raise BrokenModel(f"{plan.name} has {name} of shape {tuple(part.shape)}, expected {shape}: {_DAMAGED}")
        if part.dtype not in (_FLOATS if dtype.is_floating_point else (dtype,)):
            raise BrokenModel(f"{plan.name} has {name} of type {part.dtype}, expected {dtype}: {_DAMAGED}")
        check_finite_values(part, f"{name} of {plan.name}")
    if plan.kept:
        counts, columns = parts["kept_counts"].long(), parts["kept_columns"].to(torch.int32)
        if counts.min() < 0 or counts.sum() != plan.kept or columns.max() >= plan.shape[1]:
            raise BrokenModel(f"{plan.name} keeps weights that lie outside of it: {_DAMAGED}")


def check_finite_values(tensor: torch.Tensor, name: str) -> None:
    if tensor.is_floating_point() and not torch.isfinite(tensor).all():
        raise BrokenModel(f"{name} has NaN or infinite values: {_DAMAGED}")
