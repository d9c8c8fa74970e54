"""Plans: how many bits, which groups and which grid every tensor gets."""

from laaciq.planning.plan import Plan, Size, TensorPlan, uniform_plan

__all__ = ["Plan", "Size", "TensorPlan", "uniform_plan"]
