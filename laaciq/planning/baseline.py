"""What people would use today at the size of a plan, to be measured beside it."""

from __future__ import annotations

from laaciq.options import BITS, FULL_BITS, QuantizeOptions, RunOptions
from laaciq.planning.methods import find_method
from laaciq.planning.rules import served_languages
from laaciq.profiling.results import Profile

ENGLISH = "eng"


def baseline_options(options: RunOptions, profile: Profile) -> QuantizeOptions | None:
    """What people would use at the size of a planned method: GPTQ on a symmetric grid, calibrated in English. None where it is not asked
    for, or the model does not serve English."""
    if not (options.baseline and options.plan is None and find_method(options.method).planned):
        return None
    if ENGLISH not in served_languages(profile, options.served_bound, None):
        return None
    bits, group_size = options.bits, options.group_size
    if options.budget is not None and options.budget_for == "blocks":
        bits, group_size = plain_grid(options.budget)
    return QuantizeOptions(method="gptq", calibrate=(ENGLISH,), bits=bits, group_size=group_size)


def plain_grid(budget: float) -> tuple[int, int]:
    """Bits and group size of the largest symmetric grid within a budget of bits a weight."""
    sizes = {(b, g): b + FULL_BITS / g for b in BITS for g in (16, 32, 64, 128)}
    within = [own for own in sizes if sizes[own] <= budget + 1e-9]
    return max(within, key=lambda own: (sizes[own], own[0])) if within else (BITS[0], 128)
