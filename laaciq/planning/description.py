"""Plans in words."""

from __future__ import annotations

from collections.abc import Iterable

from laaciq.clipping.formula import PUBLISHED
from laaciq.quantization.plan import PlanSet, TensorPlan


def describe(plans: PlanSet) -> str:
    """One line: method, bits, grid, group sizes and other properties of the plans."""
    plan = plans.first
    first = plan.tensors[0]
    groups = dict.fromkeys(str(tensor.group_size) for tensor in plan.in_blocks if tensor.quantized)
    coded = [tensor for tensor in plan.in_blocks if tensor.quantized] or [first]
    grids = dict.fromkeys("symmetric" if tensor.symmetric else "affine" for tensor in coded)
    extras = [f"calibrated on {plan.languages[0]}"] if len(plan.languages) == 1 else []
    extras += ["f fitted by us"] if any(map(_uses_our_fit, plan.tensors)) else []
    extras += [f"{first.keep:g} % of weights kept"] if first.keep else []
    extras += [f"rank {first.rank}"] if first.rank else []
    extras += [f"embeddings {plan.token_matrices[0].bits} bits"] if plan.token_matrices else []
    extras += [f"tuned for {plan.tuned} epoch{'s' * (plan.tuned > 1)}"] if plan.tuned else []
    extras += [f"{len(plan.tables)} tables"] if plan.tables else []
    extras += [f"{len(plans.plans)} checkpoints"] if len(plans.plans) > 1 else []
    return ", ".join(
        [
            plan.method,
            f"{_listed(map(str, sorted({tensor.bits for tensor in plan.in_blocks})))} bits",
            _listed(grids),
            f"group {_listed(groups)}" if groups else "nothing quantized",
            *extras,
            f"{plan.size.block_bits_per_weight:.2f} bits per weight",
        ]
    )


def _uses_our_fit(tensor: TensorPlan) -> bool:
    """True for LA-ACIQ at a width for which no f is published."""
    return tensor.clip == "la-aciq" and tensor.quantized and tensor.bits not in PUBLISHED


def _listed(words: Iterable[str]) -> str:
    """`3`, `3 and 4`, `3, 4 and 6`."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
