"""A gate for continuous integration: does a run stay within what you allow?"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from laaciq.errors import BadOption
from laaciq.evaluation import Estimate, Evaluation
from laaciq.options import CheckOptions


class Failure(BaseModel):
    """One limit that is exceeded. `language` is None for the disparity."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    language: str | None
    reason: str


def check(
    run: str | Path, *, max_degradation: float | None = None, max_disparity: float | None = None, strict: bool = False
) -> list[Failure]:
    """The limits that a run exceeds for certain: by the lower end of the interval, or with `strict` those it may exceed, by the upper."""
    CheckOptions.of(run=run, max_degradation=max_degradation, max_disparity=max_disparity, strict=strict)
    if max_degradation is None and max_disparity is None:
        raise BadOption("nothing to check: give --max-D, --max-disparity or both")
    evaluation = read_evaluation(Path(run))
    failures = []
    if max_degradation is not None:
        for result in evaluation.languages:
            if not result.served:
                continue
            if result.degradation is None:
                failures.append(Failure(language=result.language, reason=f"{result.name} collapsed"))
            elif (reason := _exceeds(result.degradation, max_degradation, strict)) is not None:
                failures.append(Failure(language=result.language, reason=f"{result.name} loses {reason}"))
    if max_disparity is not None and evaluation.disparity is not None:
        reason = _exceeds(evaluation.disparity.plug_in, max_disparity, strict)
        if reason is not None:
            failures.append(Failure(language=None, reason=f"disparity is {reason}"))
    return failures


def read_evaluation(run: Path) -> Evaluation:
    """The evaluation of a run's folder, or an evaluation file itself."""
    path = run / "evaluation.json" if run.is_dir() else run
    try:
        return Evaluation.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadOption(f"{run} holds no evaluation: give the folder of a finished 'laaciq run'") from None
    except (ValidationError, UnicodeDecodeError):
        raise BadOption(f"{path} is no evaluation of this version: run 'laaciq run' again") from None


def _exceeds(estimate: Estimate, limit: float, strict: bool) -> str | None:
    judged = estimate.high if strict else estimate.low
    if judged <= limit:
        return None
    return f"{estimate.value:.4f} [{estimate.low:.4f}, {estimate.high:.4f}], more than {limit}"
