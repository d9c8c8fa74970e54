"""The baseline of a plan: GPTQ on a symmetric grid, calibrated on English, at the size of the plan."""

from __future__ import annotations

from laaciq.options import FULL_BITS, USUAL_BITS, RunOptions, WeightOptions
from laaciq.options.methods import find_method
from laaciq.planning.rules import held_out, served_languages
from laaciq.profiling.results import Profile

ENGLISH = "eng"
_GROUP_SIZES = (16, 32, 64, 128)


def baseline_options(options: RunOptions, profile: Profile) -> WeightOptions | None:
    """GPTQ at the size of a planned method. None if the options switch it off, or if English is held out or not served."""
    if not (options.baseline and options.plan is None and find_method(options.method).planned):
        return None
    if ENGLISH in held_out(options) or ENGLISH not in served_languages(profile, options.served_bound):
        return None
    bits, group_size = options.bits, options.group_size
    if options.budget is not None:
        bits, group_size = plain_grid(_block_budget(options.budget, options, profile))
    return WeightOptions(method="gptq", calibration_languages=(ENGLISH,), bits=bits, group_size=group_size)


def _block_budget(budget: float, options: RunOptions, profile: Profile) -> float:
    """Bits per weight of the blocks if everything else stays in 16 bits, as in the baseline."""
    if options.budget_for == "blocks":
        return budget
    blocks = sum(part.count for part in profile.components if part.component not in ("embeddings", "head"))
    everything = profile.architecture.parameters
    return (budget * everything - FULL_BITS * (everything - blocks)) / blocks


def plain_grid(budget: float) -> tuple[int, int]:
    """Bits and group size of the largest symmetric grid within a budget in bits per weight; the smallest grid if none fits."""
    sizes = {(bits, group): bits + FULL_BITS / group for bits in USUAL_BITS for group in _GROUP_SIZES}
    within = [grid for grid, size in sizes.items() if size <= budget + 1e-9]
    return max(within, key=lambda grid: (sizes[grid], grid[0])) if within else (USUAL_BITS[0], _GROUP_SIZES[-1])
