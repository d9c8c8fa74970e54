"""Planning: what the theory predicts for a model, and how every tensor is to be stored."""

from laaciq.planning.methods import METHODS, find_method
from laaciq.planning.plan import Plan, PlanSet, Size, TensorPlan
from laaciq.planning.strategy import make_plans

__all__ = ["METHODS", "Plan", "PlanSet", "Size", "TensorPlan", "find_method", "make_plans"]
