"""`check`: a gate for continuous integration. Does a run stay within the limits that you set?

Each limit is judged by the estimate, or by an end of its 95 % interval. PASS: that value is within the limit. FAIL: the estimate exceeds the
limit, or with `lenient` the lower end does. INCONCLUSIVE: the limit may hold, but the run does not show it. That is so if with `strict` only
the estimate is within the limit and the upper end is not, if a language has fewer than 8 documents, or if the original serves no language.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Unpack

from pydantic import Field

from laaciq.commands.settings import spells_out
from laaciq.engine.escaping import command_words, shell_command
from laaciq.engine.input_files import Refusal, is_folder, is_there
from laaciq.engine.json_input import read_record
from laaciq.engine.run_folder import read_marker
from laaciq.errors import BadOption
from laaciq.evaluation.results import Estimate, Evaluation, LanguageResult
from laaciq.evaluation.verdict import rough_intervals
from laaciq.options import CheckOptions
from laaciq.options.keywords import CheckKeywords
from laaciq.strict import StrictModel

Verdict = Literal["PASS", "FAIL", "INCONCLUSIVE"]
JudgedBy = Literal["estimate", "upper end", "lower end"]
EXIT_STATUS: dict[Verdict, int] = {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 3}
# Tests simulate the coverage of intervals from 8 documents on; below that it is unknown.
FEWEST_DOCUMENTS = 8
RUN_AGAIN = Refusal(BadOption, "the run is damaged or of another version; run 'laaciq run' again")


class LanguageVerdict(StrictModel):
    """One language under `--max-D`. `degradation` is None if the language collapsed."""

    language: str
    name: str
    verdict: Verdict
    degradation: Estimate | None

    def __str__(self) -> str:
        return f"{self.name} {'collapsed' if self.degradation is None else _interval(self.degradation)}"


class LimitVerdict(StrictModel):
    """One limit. `languages` are those that fail or are inconclusive, worst first; always empty for the disparity."""

    option: Literal["--max-D", "--max-disparity"]
    limit: float
    judged_by: JudgedBy
    verdict: Verdict
    reason: str
    languages: list[LanguageVerdict] = Field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.verdict} {self.option} {self.limit:g}, judged by the {self.judged_by}: {self.reason}"


class CheckResult(StrictModel):
    """All given limits, and one verdict: FAIL if one fails, PASS only if all pass."""

    verdict: Verdict
    limits: list[LimitVerdict]

    @property
    def exit_status(self) -> int:
        return EXIT_STATUS[self.verdict]


@spells_out(CheckOptions, CheckKeywords)
def check(run: str | Path, **options: Unpack[CheckKeywords]) -> CheckResult:
    """The verdict on a run's folder or an evaluation.json: D of every served language against `max_degradation`, max D − min D against
    `max_disparity`. Options as in `CheckOptions`.

    A language that collapsed fails both limits. With fewer than two comparable languages `max_disparity` fails. `strict` judges by the
    upper end of the interval, `lenient` by the lower end.
    """
    chosen = CheckOptions.of(run=run, **options)
    judged_by: JudgedBy = "upper end" if chosen.strict else "lower end" if chosen.lenient else "estimate"
    evaluation = read_evaluation(Path(chosen.run))
    limits: list[LimitVerdict] = []
    if chosen.max_degradation is not None:
        limits.append(_check_degradation(evaluation, chosen.max_degradation, judged_by))
    if chosen.max_disparity is not None:
        limits.append(_check_disparity(evaluation, chosen.max_disparity, judged_by))
    if rough := rough_intervals(evaluation.fewest_documents):
        limits = [limit.model_copy(update={"reason": f"{limit.reason}. {rough}"}) for limit in limits]
    return CheckResult(verdict=_worst([limit.verdict for limit in limits]), limits=limits)


def read_evaluation(run: Path) -> Evaluation:
    """The evaluation in a finished run's folder, or in a file."""
    within = run if is_folder(run) else None
    path = run / "evaluation.json" if within else run
    marker = read_marker(run) if within else None
    if marker is not None and not marker.get("finished"):
        words = command_words(marker.get("command", "laaciq run"))
        raise BadOption(f"{run} is not finished. To finish it, run: {shell_command([*words, '--out', str(run)])}")
    if not is_there(path):
        raise BadOption(f"{run} has no evaluation: give the folder of a finished 'laaciq run'")
    return read_record(path, Evaluation, RUN_AGAIN, within=within)


def judge(estimate: Estimate, limit: float, judged_by: JudgedBy, *, documents: int) -> Verdict:
    """The verdict on one value and one limit, by the rule at the top of this file."""
    if judged_by != "lower end" and estimate.value > limit:
        return "FAIL"
    if documents < FEWEST_DOCUMENTS:
        return "INCONCLUSIVE"
    if judged_by == "lower end":
        return "FAIL" if estimate.low > limit else "PASS"
    return "PASS" if judged_by == "estimate" or estimate.high <= limit else "INCONCLUSIVE"


def _check_degradation(evaluation: Evaluation, limit: float, judged_by: JudgedBy) -> LimitVerdict:
    served = [result for result in evaluation.worst_first if result.served]
    languages = [_judge_language(result, limit, judged_by) for result in served]
    not_served = len(evaluation.languages) - len(served)
    pronoun = "it" if not_served == 1 else "them"
    more = f"; {not_served} not judged, since the original does not serve {pronoun}" if not_served else ""
    reason = "the original serves no language, so there is nothing to judge"
    if languages:
        lists = [
            f"{_count(members)} of {len(languages)} {verb}: {', '.join(map(str, members))}"
            for verb, members in _by_verdict(languages)
        ]
        reason = "; ".join(lists) or f"the worst of {_count(languages)} is {languages[0]}"
    return LimitVerdict(
        option="--max-D",
        limit=limit,
        judged_by=judged_by,
        verdict=_worst([language.verdict for language in languages]),
        reason=reason + more,
        languages=[language for language in languages if language.verdict != "PASS"],
    )


def _judge_language(result: LanguageResult, limit: float, judged_by: JudgedBy) -> LanguageVerdict:
    degradation = None if result.collapsed else result.degradation
    return LanguageVerdict(
        language=result.language,
        name=result.name,
        verdict="FAIL" if degradation is None else judge(degradation, limit, judged_by, documents=result.documents),
        degradation=degradation,
    )


def _check_disparity(evaluation: Evaluation, limit: float, judged_by: JudgedBy) -> LimitVerdict:
    collapsed = [result.name for result in evaluation.languages if result.served and result.collapsed]
    disparity = evaluation.disparity
    verdict: Verdict = "FAIL"
    if collapsed:
        reason = f"{', '.join(collapsed)} collapsed"
    elif disparity is None:
        reason = "fewer than two languages can be compared"
    else:
        documents = min(result.documents for result in evaluation.judged)
        verdict = judge(disparity.plug_in, limit, judged_by, documents=documents)
        worst, best = evaluation[disparity.worst_language], evaluation[disparity.best_language]
        reason = f"{_interval(disparity.plug_in)}, from {worst.name} to {best.name}"
    return LimitVerdict(option="--max-disparity", limit=limit, judged_by=judged_by, verdict=verdict, reason=reason)


def _worst(verdicts: list[Verdict]) -> Verdict:
    """The worst verdict; INCONCLUSIVE if there is none."""
    if "FAIL" in verdicts:
        return "FAIL"
    return "PASS" if verdicts and "INCONCLUSIVE" not in verdicts else "INCONCLUSIVE"


def _by_verdict(languages: list[LanguageVerdict]) -> list[tuple[str, list[LanguageVerdict]]]:
    verbs: dict[Verdict, tuple[str, str]] = {
        "FAIL": ("fails", "fail"),
        "INCONCLUSIVE": ("is inconclusive", "are inconclusive"),
    }
    grouped = []
    for verdict, (one, several) in verbs.items():
        if members := [language for language in languages if language.verdict == verdict]:
            grouped.append((one if len(members) == 1 else several, members))
    return grouped


def _count(languages: list[LanguageVerdict]) -> str:
    return f"{len(languages)} language{'s' * (len(languages) > 1)}"


def _interval(estimate: Estimate) -> str:
    # z: a small gain is 0.00, not -0.00.
    value, low, high = (f"{100 * number:z.2f} %" for number in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]"
