"""Plans in words."""

from __future__ import annotations

from laaciq.quantization.plan import PlanSet


def describe(plans: PlanSet) -> str:
    """In one line: what differs between tensors is told as a list."""
    plan = plans.first
    first = plan.tensors[0]
    quantized = [tensor for tensor in plan.in_blocks if tensor.quantized]
    groups = dict.fromkeys(str(tensor.group_size) for tensor in quantized)
    extras = [f"calibrated in {plan.languages[0]}"] if len(plan.languages) == 1 else []
    extras += [f"{first.keep:g} % kept"] if first.keep else []
    extras += [f"rank {first.rank}"] if first.rank else []
    extras += [f"embeddings {plan.token_matrices[0].bits} bits"] if plan.token_matrices else []
    extras += [f"tuned for {plan.tuned} epochs"] if plan.tuned else []
    extras += [f"{len(plan.tables)} tables"] if plan.tables else []
    extras += [f"{len(plans.plans)} checkpoints"] if len(plans.plans) > 1 else []
    return ", ".join(
        [
            plan.method,
            f"{' and '.join(map(str, sorted({tensor.bits for tensor in plan.in_blocks})))} bits",
            "symmetric" if first.symmetric else "affine",
            f"group {' and '.join(groups)}" if groups else "nothing quantized",
            *extras,
            f"{plan.size.block_bits_per_weight:.2f} bits a weight",
        ]
    )
