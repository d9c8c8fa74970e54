"""The spread over draws of calibration text: the part of the variance that test passages do not show."""

from __future__ import annotations

from laaciq.evaluation.results import Evaluation
from laaciq.strict import StrictModel


class Spread(StrictModel):
    """D over several draws of calibration text, one entry per draw; the first is the run itself.

    None stands for a language that collapsed, and for a draw in which nothing could be judged.
    """

    by_language: dict[str, list[float | None]]
    worst: list[float | None]
    mean: list[float | None]
    disparity: list[float | None]

    @property
    def draws(self) -> int:
        return len(self.mean)


def spread_of(evaluations: list[Evaluation]) -> Spread:
    """The spread of several evaluations of the same model on the same test text."""
    served = [result.language for result in evaluations[0].languages if result.served]

    def degradation(evaluation: Evaluation, code: str) -> float | None:
        estimate = evaluation[code].degradation
        return None if estimate is None else estimate.value

    by_language = {code: [degradation(evaluation, code) for evaluation in evaluations] for code in served}
    by_draw = [[values[draw] for values in by_language.values()] for draw in range(len(evaluations))]
    return Spread(
        by_language=by_language,
        worst=[None if not values or None in values else max(v for v in values if v is not None) for values in by_draw],
        mean=[evaluation.summary.mean for evaluation in evaluations],
        disparity=[None if e.disparity is None else e.disparity.plug_in.value for e in evaluations],
    )
