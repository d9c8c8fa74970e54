"""The report as Markdown, for a model card or a pull request."""

from __future__ import annotations

import re

from laaciq.evaluation.results import Evaluation
from laaciq.evaluation.spread import Spread
from laaciq.planning.results import Planning
from laaciq.quantization.plan import PlanSet
from laaciq.report import wording


def markdown_report(
    evaluation: Evaluation,
    plans: PlanSet | None,
    *,
    command: str,
    baseline: Evaluation | None = None,
    planning: Planning | None = None,
    spread: Spread | None = None,
) -> str:
    """What quantization costs each language, in Markdown. `command` reproduces the evaluation."""
    disagreement = wording.disagreement(evaluation)
    parts = [
        f"# {wording.TITLE}",
        f"**{escaped(evaluation.verdict)}**",
        *([escaped(wording.baseline_sentence(evaluation, baseline))] if baseline else []),
        *([escaped(wording.spread_sentence(spread))] if spread else []),
        "## What was compared",
        facts_list(evaluation, plans),
        "## By language",
        language_table(evaluation, baseline),
        escaped(wording.table_caption(evaluation)),
        "## Disparity",
        escaped(" ".join(wording.disparity_sentences(evaluation))),
        *([escaped(disagreement)] if disagreement else []),
        *folded("More statistics", wording.disparity_details(evaluation)),
        *(["## The plan", escaped(" ".join(wording.planning_sentences(planning)))] if planning else []),
        "## Definitions",
        "\n".join(f"- **{term}**: {escaped(meaning)}" for term, meaning in wording.definitions(evaluation)),
        "## Reproduce",
        code_block(command),
    ]
    return "\n\n".join(parts) + "\n"


def folded(summary: str, sentences: list[str]) -> list[str]:
    """Closed until the reader opens it, where Markdown is shown as a page."""
    if not sentences:
        return []
    return [f"<details>\n<summary>{escaped(summary)}</summary>", escaped(" ".join(sentences)), "</details>"]


def facts_list(evaluation: Evaluation, plans: PlanSet | None) -> str:
    return "\n".join(
        f"- {fact.label}: {code_span(fact.value) if fact.verbatim else escaped(fact.value)}"
        for fact in wording.facts(evaluation, plans)
    )


def language_table(evaluation: Evaluation, baseline: Evaluation | None) -> str:
    columns = wording.columns(evaluation, baseline)
    rows = [[column.cell(result) for column in columns] for result in evaluation.worst_first]
    return table([column.heading for column in columns], rows, numeric=[column.numeric for column in columns])


def table(headings: list[str], rows: list[list[str]], *, numeric: list[bool]) -> str:
    lines = [
        headings,
        ["---:" if right else "---" for right in numeric],
        *([escaped(cell) for cell in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escaped(text: str) -> str:
    """Text in one line that no Markdown reader takes for markup; intervals such as [2.8, 3.7] stay readable."""
    one_line = " ".join(text.split())
    return re.sub(r"[\\`*_<|~]|(?<=\])[(\[]|!(?=\[)", r"\\\g<0>", one_line)


def code_span(text: str) -> str:
    one_line = " ".join(text.split())
    fence = "`" * (_longest_run(one_line) + 1)
    padding = " " if "`" in one_line else ""
    return f"{fence}{padding}{one_line}{padding}{fence}"


def code_block(text: str, language: str = "sh") -> str:
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
