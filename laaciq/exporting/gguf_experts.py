"""Experts in a GGUF file: one tensor for a projection of all experts of a block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from laaciq.errors import BrokenModel
from laaciq.exporting.contents import Coded
from laaciq.planning.runtimes import EXPERT, stack_name
from laaciq.quantization.grid import Grid, QuantizedMatrix

UNLIKE = "the experts of its block are not stored alike, and GGUF has one tensor for all of them"

Stored = torch.Tensor | Coded


def expert_count(config: Any) -> int:
    """Experts of a block, by the configuration of transformers."""
    return getattr(config, "num_experts", None) or 0


def stack_experts(contents: Iterable[tuple[str, Stored]], experts: int) -> Iterator[tuple[str, dict[str, Stored]]]:
    """Tensors of the file by name, each with the tensors of the model that it holds. A block has this many `experts`, or none."""
    waiting: dict[str, dict[int, tuple[str, Stored]]] = {}
    for name, stored in contents:
        if (expert := EXPERT.match(name.removesuffix(".weight"))) is None:
            yield name, {name: stored}
            continue
        stack = f"{stack_name(name)}.weight"
        numbered = waiting.setdefault(stack, {})
        numbered[int(expert[2])] = (name, stored)
        if sorted(numbered) == list(range(experts)):
            yield stack, dict(numbered[number] for number in range(experts))
            del waiting[stack]
    if waiting:
        raise BrokenModel(f"{next(iter(waiting))} has not {experts} experts, as config.json says: copy the model again")


def joined(parts: list[Stored]) -> Stored | None:
    """The rows of all parts as one matrix; None if some are coded otherwise than others."""
    coded = [part for part in parts if isinstance(part, Coded)]
    if not coded:
        return torch.cat([part for part in parts if isinstance(part, torch.Tensor)])
    if len(parts) == 1:
        return parts[0]
    plans = {
        (part.plan.bits, part.plan.group_size, part.plan.symmetric, part.plan.keep, part.plan.rank, part.plan.tables)
        for part in coded
    }
    first = coded[0].plan
    if len(coded) < len(parts) or len(plans) > 1 or first.kept or first.rank:
        return None
    outputs = sum(part.plan.shape[0] for part in coded)
    # One scale for a whole expert becomes one per row.
    size = "channel" if first.group_size == "tensor" else first.group_size
    plan = first.model_copy(update={"shape": (outputs, first.shape[1]), "group_size": size})
    scales = torch.cat([_by_row(part.quantized.grid.scales, part) for part in coded])
    zeros = [_by_row(part.quantized.grid.zeros, part) for part in coded if part.quantized.grid.zeros is not None]
    grid = Grid(scales, torch.cat(zeros) if zeros else None)
    return Coded(QuantizedMatrix(torch.cat([part.quantized.codes for part in coded]), grid), plan)


def _by_row(values: torch.Tensor, part: Coded) -> torch.Tensor:
    return values.expand(part.plan.shape[0], -1)
