"""The result of an export, written with it and printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from laaciq.evaluation import Evaluation
from laaciq.quantization.plan import TensorPlan
from laaciq.strict import StrictModel


class Misfit(StrictModel):
    """A tensor that a format cannot hold unchanged, the reason, and what folding does to it."""

    tensor: str
    reason: str
    folded_to: Literal["16 bits", "shared scales"]

    @classmethod
    def of(cls, plan: TensorPlan, obstacle: str | None) -> Misfit | None:
        """With an `obstacle` to its codes, a tensor is folded to 16 bits; otherwise only its tables are, to the shared scales."""
        if obstacle is not None:
            return cls(tensor=plan.name, reason=obstacle, folded_to="16 bits")
        if plan.tables:
            reason = f"it has {plan.tables} tables of scales for languages"
            return cls(tensor=plan.name, reason=reason, folded_to="shared scales")
        return None


class Rule(StrictModel):
    """A rule of a runtime, and the layers that break it."""

    rule: str
    broken_by: list[str]


@dataclass(frozen=True)
class Written:
    """A format's account of a folder that it wrote, for `Exported`."""

    layouts: dict[str, int]
    widened: int
    notes: list[str]


class Exported(StrictModel):
    """`layouts` counts the layers in each layout, `widened` those with more bits or smaller groups than in the checkpoint. `runtimes` has the
    rules of every runtime that reads the format, or of the requested one. `before` and `after` are evaluations of the checkpoint and of the
    export, if folding changed numbers. Sizes are those of weight files.
    """

    version: Literal[2] = 2
    checkpoint: str
    format: str
    folder: str
    bytes_before: int
    bytes_after: int
    layouts: dict[str, int]
    widened: int
    folded: list[Misfit]
    runtimes: dict[str, list[Rule]]
    notes: list[str]
    before: Evaluation | None = None
    after: Evaluation | None = None
