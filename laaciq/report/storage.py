"""A plan in words by kind of tensor: which bits, in which blocks."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from laaciq.quantization.plan import Plan, TensorPlan


class StorageRow(NamedTuple):
    """Kinds of tensors that are stored alike; `bits_per_weight` counts scales and all else."""

    kinds: list[str]
    stored: str
    bits_per_weight: float


def storage_rows(plan: Plan, block_names: list[str]) -> list[StorageRow]:
    """`self_attn.q_proj` is a kind: all tensors of that name, whatever their block."""
    by_kind: dict[str, dict[int, TensorPlan]] = {}
    for tensor in plan.in_blocks:
        block = next(i for i, name in enumerate(block_names) if tensor.name.startswith(f"{name}."))
        kind = tensor.name.removeprefix(f"{block_names[block]}.").removesuffix(".weight")
        by_kind.setdefault(kind, {})[block] = tensor
    alike: dict[str, list[str]] = {}
    for kind, by_block in by_kind.items():
        alike.setdefault(_in_blocks(by_block), []).append(kind)
    rows = [
        StorageRow(kinds, stored, _bits_per_weight([tensor for kind in kinds for tensor in by_kind[kind].values()]))
        for stored, kinds in alike.items()
    ]
    return rows + [StorageRow(list(own.used_by), _way(own), _bits_per_weight([own])) for own in plan.token_matrices]


def _in_blocks(by_block: dict[int, TensorPlan]) -> str:
    ways: dict[str, list[int]] = {}
    for block, tensor in by_block.items():
        ways.setdefault(_way(tensor), []).append(block)
    if len(ways) == 1:
        return next(iter(ways))
    return "; ".join(f"{way} in block{'s' * (len(own) > 1)} {spans(own)}" for way, own in ways.items())


def _way(tensor: TensorPlan) -> str:
    if not tensor.quantized:
        return f"{tensor.bits} bits, as it was"
    said = [f"{tensor.bits} bits", f"group {tensor.group_size}", "symmetric" if tensor.symmetric else "affine"]
    said += [f"{tensor.keep:g} % kept in 16 bits"] if tensor.keep else []
    said += [f"correction of rank {tensor.rank}"] if tensor.rank else []
    return ", ".join(said)


def _bits_per_weight(tensors: list[TensorPlan]) -> float:
    return sum(tensor.stored_bits for tensor in tensors) / sum(tensor.weights for tensor in tensors)


def spans(numbers: list[int]) -> str:
    """`[0, 1, 2, 5]` → `0–2, 5`."""
    runs = groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0])
    ends = [[number for _, number in run] for _, run in runs]
    return ", ".join(f"{own[0]}–{own[-1]}" if len(own) > 1 else str(own[0]) for own in ends)
