"""From findings to verdicts: corrected for their number, by model and pooled over models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, model_validator

from laaciq.engine.display import Displayed
from laaciq.lab.claim import Claim
from laaciq.lab.findings import Finding, NotApplicable, Unanswered
from laaciq.lab.planted import OUTLIERS, without_suffix
from laaciq.lab.rules import Claimed, backward, forward, from_error, holds
from laaciq.stats.estimate import LEVEL
from laaciq.stats.meta_analysis import pool_effects
from laaciq.stats.multiplicity import benjamini_hochberg
from laaciq.strict import StrictModel

Verdict = Literal["supported", "refuted", "undecided", "not applicable"]
Answer = Finding | Unanswered
Name = TypeVar("Name")


class Decision(StrictModel):
    """The verdict on one claim. Without a `finding`, `reason` says why there is none and `needed` what would give one.

    `corrected_p` is p after Benjamini and Hochberg's correction over all findings of the table that have noise; p itself where a value is
    known exactly. Supported: it is below 0.05 and the estimate lies where the claim says. Refuted: it is below 0.05 and the estimate lies
    beyond the threshold.
    """

    verdict: Verdict
    finding: Finding | None = None
    corrected_p: Annotated[float, Field(ge=0, le=1)] | None = None
    reason: str = ""
    needed: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.finding is None) != (self.corrected_p is None) or (self.finding is None) != bool(self.reason):
            raise ValueError("a decision has a finding with its p, or a reason why there is none")
        return self


class ClaimRow(StrictModel):
    """One claim with its verdict by model, and pooled where `pool` can."""

    name: str
    words: str
    place: str
    rule: str
    decisions: dict[str, Decision]
    pooled: Decision | None = None


class LabResult(Displayed, StrictModel):
    """The table of verdicts. `languages` are those measured, by model."""

    version: Literal[1] = 1
    models: list[str]
    texts: str
    quick: bool
    languages: dict[str, list[str]]
    rows: list[ClaimRow]
    command: str

    def __getitem__(self, claim: str) -> ClaimRow:
        return next(row for row in self.rows if row.name == claim)


def verdict_rows(claims: Sequence[Claim], answers: Mapping[str, Mapping[str, Answer]]) -> list[ClaimRow]:
    """Rows from answers by claim and model."""
    cells = {(claim.name, model): answer for claim in claims for model, answer in answers[claim.name].items()}
    decided = judge(cells)
    pooled = judge({claim.name: finding for claim in claims if (finding := pool(answers[claim.name])) is not None})
    return [
        ClaimRow(
            name=claim.name,
            words=claim.words,
            place=claim.place,
            rule=claim.rule,
            decisions={model: decided[claim.name, model] for model in answers[claim.name]},
            pooled=pooled.get(claim.name),
        )
        for claim in claims
    ]


def judge(answers: Mapping[Name, Answer]) -> dict[Name, Decision]:
    """Verdicts, with p corrected over all findings that have noise."""
    findings = {name: answer for name, answer in answers.items() if isinstance(answer, Finding)}
    corrected = {name: finding.p for name, finding in findings.items()}
    # Each p of 0 would raise the number of rejections, and so loosen the correction of all others.
    if noisy := {name: finding.p for name, finding in findings.items() if not _exact(finding)}:
        corrected |= zip(noisy, map(float, benjamini_hochberg(list(noisy.values()))), strict=True)
    return {
        name: _verdict(answer, corrected[name]) if isinstance(answer, Finding) else _unanswered(answer)
        for name, answer in answers.items()
    }


def _exact(finding: Finding) -> bool:
    """True of a value without noise: its p is 0 or 1. Draws that all agree have no spread either, but a p between."""
    return finding.standard_error == 0 and finding.p in (0.0, 1.0)


def _verdict(finding: Finding, corrected: float) -> Decision:
    verdict: Verdict = "undecided"
    if corrected < 1 - LEVEL:
        verdict = "supported" if holds(finding) else "refuted"
    return Decision(verdict=verdict, finding=finding, corrected_p=corrected)


def _unanswered(answer: Unanswered) -> Decision:
    verdict: Verdict = "not applicable" if isinstance(answer, NotApplicable) else "undecided"
    return Decision(verdict=verdict, reason=answer.reason, needed=answer.needed)


def pool(answers: Mapping[str, Answer]) -> Finding | None:
    """Random-effects mean over models (REML; Hartung & Knapp, modified for few models), on the scale of the findings.

    None with fewer than two models whose weights are independent, or if their thresholds differ. None too if any of them has no standard
    error above 0: to leave out the models with open intervals would bias the mean.
    """
    by_model = _of_independent_models({model: a for model, a in answers.items() if isinstance(a, Finding)})
    findings = list(by_model.values())
    errors = [finding.standard_error for finding in findings if finding.standard_error]
    if len(findings) < 2 or len(errors) < len(findings):
        return None
    if len({(f.statistic, f.threshold, f.side, f.scale) for f in findings}) > 1:
        return None
    first = findings[0]
    effects = [forward(finding.estimate.value, first.scale) for finding in findings]
    pooled = pool_effects(effects, [error**2 for error in errors], interval="modified-hartung-knapp")
    claim = Claimed(statistic=first.statistic, threshold=first.threshold, side=first.side, claimed=first.claimed)
    return from_error(
        backward(pooled.mean, first.scale), pooled.standard_error, freedom=pooled.studies - 1, claim=claim,
        languages=sum(f.languages for f in findings), independent=pooled.studies, scale=first.scale,
        note=f"Over {', '.join(by_model)}. I² = {pooled.inconsistency:.2f}.",
    )  # fmt: skip


def _of_independent_models(findings: Mapping[str, Finding]) -> dict[str, Finding]:
    """Without `NAME+outliers` beside NAME: both have the same weights, rescaled in one of them. #2 marks a second model of one name."""
    stems = {model: model.partition("#")[0] for model in findings}
    return {
        model: finding
        for model, finding in findings.items()
        if not (stems[model].endswith(OUTLIERS) and without_suffix(stems[model]) in stems.values())
    }
