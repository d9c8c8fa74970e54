"""The report as Markdown, for a model card or a pull request."""

from __future__ import annotations

from collections.abc import Mapping

from laaciq.engine.escaping import html_text, markdown_block, markdown_code, markdown_text, shown_command
from laaciq.evaluation.results import Evaluation
from laaciq.evaluation.spread import Spread
from laaciq.evaluation.theory import TheoryFindings
from laaciq.planning.results import Planning
from laaciq.quantization.plan import PlanSet
from laaciq.report import wording
from laaciq.report.theory_section import CLAIM, relation_sentence, theory_sentences


def markdown_report(
    evaluation: Evaluation,
    plans: PlanSet | None,
    *,
    command: str,
    computed_with: Mapping[str, str] | None = None,
    baseline: Evaluation | None = None,
    planning: Planning | None = None,
    spread: Spread | None = None,
    theory: TheoryFindings | None = None,
    baseline_theory: TheoryFindings | None = None,
    plots: Mapping[str, str] | None = None,
) -> str:
    """What quantization costs each language, in Markdown. `command`, `computed_with`, `theory` and `baseline_theory` as in `html_report`;
    `plots` are files beside the report by the titles of their figures.
    """
    disagreement = wording.disagreement(evaluation)
    parts = [
        f"# {wording.TITLE}",
        f"**{markdown_text(evaluation.verdict)}**",
        *([markdown_text(wording.baseline_sentence(evaluation, baseline))] if baseline else []),
        *([markdown_text(wording.spread_sentence(spread))] if spread else []),
        "## What was compared",
        facts_list(evaluation, plans),
        "## By language",
        language_table(evaluation, baseline),
        markdown_text(wording.table_caption(evaluation)),
        "## Disparity",
        markdown_text(" ".join(wording.disparity_sentences(evaluation))),
        *([markdown_text(disagreement)] if disagreement else []),
        *folded("More statistics", wording.disparity_details(evaluation)),
        *(["## The plan", markdown_text(" ".join(wording.planning_sentences(planning)))] if planning else []),
        *(_theory(theory, baseline_theory, plots or {}) if theory else []),
        "## Definitions",
        "\n".join(f"- **{term}**: {markdown_text(meaning)}" for term, meaning in wording.definitions(evaluation)),
        "## Reproduce",
        *([markdown_text(wording.environment_sentence(computed_with))] if computed_with else []),
        markdown_block(shown_command(command)),
    ]
    return "\n\n".join(parts) + "\n"


def _theory(theory: TheoryFindings, baseline: TheoryFindings | None, plots: Mapping[str, str]) -> list[str]:
    parts = ["## What this means for the theory", markdown_text(CLAIM)]
    parts.append("\n".join(f"- {markdown_text(sentence)}" for sentence in theory_sentences(theory)))
    if baseline is not None:
        sentences = " ".join(map(relation_sentence, baseline.relations))
        parts.append(markdown_text(f"With the {wording.BASELINE}: {sentences}"))
    return parts + [f"![{markdown_text(title)}]({file})" for title, file in plots.items()]


def folded(summary: str, sentences: list[str]) -> list[str]:
    """Closed until the reader opens it, where Markdown is shown as a page."""
    if not sentences:
        return []
    return [f"<details>\n<summary>{html_text(summary)}</summary>", markdown_text(" ".join(sentences)), "</details>"]


def facts_list(evaluation: Evaluation, plans: PlanSet | None) -> str:
    return "\n".join(
        f"- {fact.label}: {markdown_code(fact.value) if fact.verbatim else markdown_text(fact.value)}"
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
        *([markdown_text(cell) for cell in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
