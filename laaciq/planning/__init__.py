"""Plans: how many bits, which groups and which grid every tensor gets."""

from laaciq.planning.plan import BITS, GroupSize, Plan, Size, TensorPlan, uniform_plan

__all__ = ["BITS", "GroupSize", "Plan", "Size", "TensorPlan", "uniform_plan"]
