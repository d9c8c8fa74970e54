"""A quantized model on disk: packed codes, scales and zero points of every planned tensor, all other tensors in 16 bits, and the plan.

`NAME.codes`, `NAME.scales` and, for affine grids, `NAME.zeros` (packed like the codes) stand for the tensor `NAME`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from laaciq.engine.files import atomic_folder, write_text
from laaciq.errors import BrokenModel
from laaciq.models import LanguageModel
from laaciq.planning import Plan, TensorPlan
from laaciq.quantization.grid import QuantizedMatrix
from laaciq.quantization.methods import find_method
from laaciq.quantization.packing import pack, unpack

WEIGHTS = "quantized.safetensors"
PLAN = "plan.json"


def write_checkpoint(
    model: LanguageModel, plan: Plan, folder: Path, *, advance: Callable[[], None] = lambda: None
) -> None:
    """Quantize every planned tensor and write the folder, whole or not at all. `advance` is called after each tensor."""
    method = find_method(plan.method)
    linears = {linear.name: linear for linear in model.anatomy.linears}
    tensors: dict[str, torch.Tensor] = {}
    for tensor in plan.tensors:
        if tensor.name not in linears or linears[tensor.name].shape != tensor.shape:
            raise BrokenModel(
                f"this plan is for another model: {model.folder.name} has no {tensor.shape} {tensor.name}"
            )
        tensors |= _packed(method.quantize(linears[tensor.name].matrix, tensor), tensor)
        advance()
    planned = set(linears)
    for name, parameter in model.module.named_parameters():
        if name not in planned:
            tensors[name] = _half(parameter.detach())
    with atomic_folder(folder) as partial:
        save_file(tensors, partial / WEIGHTS, metadata={"format": "pt"})
        write_text(partial / PLAN, plan.model_dump_json(indent=1))


def is_checkpoint(folder: Path) -> bool:
    """Was this folder written by `write_checkpoint`?"""
    return (folder / PLAN).exists() and (folder / WEIGHTS).exists()


def apply_checkpoint(model: LanguageModel, folder: Path) -> Plan:
    """Replace the weights of `model`, in place, by what the checkpoint's codes mean; returns its plan."""
    plan = Plan.model_validate_json((folder / PLAN).read_text(encoding="utf-8"))
    linears = {linear.name: linear for linear in model.anatomy.linears}
    try:
        with safe_open(folder / WEIGHTS, framework="pt") as file, torch.no_grad():
            for tensor in plan.tensors:
                stored = {part: file.get_tensor(f"{tensor.name}.{part}") for part in _parts(tensor)}
                linears[tensor.name].matrix.copy_(_unpacked(stored, tensor).dequantize(tensor))
    except (SafetensorError, OSError, KeyError) as error:
        raise BrokenModel(f"{folder / WEIGHTS} is broken or for another model ({error}); quantize again") from None
    return plan


def _parts(plan: TensorPlan) -> list[str]:
    return ["codes", "scales"] if plan.symmetric else ["codes", "scales", "zeros"]


def _packed(quantized: QuantizedMatrix, plan: TensorPlan) -> dict[str, torch.Tensor]:
    stored = {f"{plan.name}.codes": pack(quantized.codes, plan.bits), f"{plan.name}.scales": quantized.scales}
    if quantized.zeros is not None:
        stored[f"{plan.name}.zeros"] = pack(quantized.zeros, plan.bits)
    return {name: tensor.cpu().contiguous() for name, tensor in stored.items()}


def _unpacked(stored: dict[str, torch.Tensor], plan: TensorPlan) -> QuantizedMatrix:
    scales = stored["scales"]
    zeros = unpack(stored["zeros"], plan.bits, tuple(scales.shape)) if "zeros" in stored else None
    return QuantizedMatrix(unpack(stored["codes"], plan.bits, plan.shape), scales, zeros)


def _half(tensor: torch.Tensor) -> torch.Tensor:
    """In 16 bits: bfloat16 where that loses nothing or float16 could overflow, else float16."""
    if not tensor.is_floating_point():
        return tensor.cpu().contiguous()
    brain = tensor.to(torch.bfloat16)
    exact = torch.equal(brain.to(tensor.dtype), tensor)
    small = tensor.abs().max() <= torch.finfo(torch.float16).max if tensor.numel() else True
    return (brain if exact or not small else tensor.to(torch.float16)).cpu().contiguous()
