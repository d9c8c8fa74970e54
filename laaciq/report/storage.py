"""A plan in words, by kind of tensor: which bits in which blocks."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from laaciq.quantization.plan import Plan, TensorPlan


class StorageRow(NamedTuple):
    """Kinds of tensors that are stored alike; `bits_per_weight` includes scales and everything else."""

    kinds: list[str]
    stored: str
    bits_per_weight: float


def storage_rows(plan: Plan, block_names: list[str]) -> list[StorageRow]:
    """A kind is all tensors of one name, such as `self_attn.q_proj`, in any block."""
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
    tokens = [StorageRow(list(t.used_by), _storage(t), _bits_per_weight([t])) for t in plan.token_matrices]
    return rows + tokens


def _in_blocks(by_block: dict[int, TensorPlan]) -> str:
    storages: dict[str, list[int]] = {}
    for block, tensor in by_block.items():
        storages.setdefault(_storage(tensor), []).append(block)
    if len(storages) == 1:
        return next(iter(storages))
    return "; ".join(
        f"{storage} in block{'s' * (len(blocks) > 1)} {spans(blocks)}" for storage, blocks in storages.items()
    )


def _storage(tensor: TensorPlan) -> str:
    if not tensor.quantized:
        return f"{tensor.bits} bits, not quantized"
    words = [f"{tensor.bits} bits", f"group {tensor.group_size}", "symmetric" if tensor.symmetric else "affine"]
    words += [f"{tensor.keep:g} % kept in 16 bits"] if tensor.keep else []
    words += [f"correction of rank {tensor.rank}"] if tensor.rank else []
    return ", ".join(words)


def _bits_per_weight(tensors: list[TensorPlan]) -> float:
    return sum(tensor.stored_bits for tensor in tensors) / sum(tensor.weights for tensor in tensors)


def spans(numbers: list[int]) -> str:
    """`[0, 1, 2, 5]` → `0–2, 5`."""
    runs = groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0])
    spanned = [[number for _, number in run] for _, run in runs]
    return ", ".join(f"{span[0]}–{span[-1]}" if len(span) > 1 else str(span[0]) for span in spanned)
