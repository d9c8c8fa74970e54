"""Which tensor gets how many bits, and how much each language's text counts: plans for the worst-off language under a size budget.

`curvature` and `menu` say what each choice for each tensor would cost each language, `programme` chooses, `minimax` weighs the languages,
`planner` does it all and measures what it planned on validation text.
"""

from laaciq.allocation.objectives import objective_value
from laaciq.allocation.programme import Allocation, allocate

__all__ = ["Allocation", "allocate", "objective_value"]
