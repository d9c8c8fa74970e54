"""The report as Markdown, for a model card or a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from laaciq.engine.escaping import html_text, markdown_block, markdown_code, markdown_text, shown_command
from laaciq.evaluation.continuations import GenerationResult
from laaciq.evaluation.results import Evaluation
from laaciq.evaluation.theory import TheoryFindings
from laaciq.quantization.plan import PlanSet
from laaciq.report import generation_section, wording
from laaciq.report.findings import Findings
from laaciq.report.paired_cells import FOOT
from laaciq.report.theory_section import CLAIM, relation_sentence, theory_sentences


def markdown_report(findings: Findings) -> str:
    """What quantization costs each language, in Markdown. It has no profile."""
    evaluation, baseline, planning, spread = findings.evaluation, findings.baseline, findings.planning, findings.spread
    disagreement = wording.disagreement(evaluation)
    parts = [
        f"# {wording.TITLE}",
        f"**{markdown_text(evaluation.verdict)}**",
        *([markdown_text(wording.baseline_sentence(evaluation, baseline))] if baseline else []),
        *([markdown_text(wording.spread_sentence(spread))] if spread else []),
        "## What was compared",
        facts_list(evaluation, findings.plans),
        "## By language",
        language_table(evaluation, baseline),
        markdown_text(wording.table_caption(evaluation)),
        *(_generation(findings.generation) if findings.generation else []),
        "## Disparity",
        markdown_text(" ".join(wording.disparity_sentences(evaluation))),
        *([markdown_text(disagreement)] if disagreement else []),
        *folded("More statistics", wording.disparity_details(evaluation)),
        *(["## The plan", markdown_text(" ".join(wording.planning_sentences(planning)))] if planning else []),
        *(_theory(findings.theory, findings) if findings.theory else []),
        "## Definitions",
        "\n".join(f"- **{term}**: {markdown_text(meaning)}" for term, meaning in wording.definitions(evaluation)),
        "## Reproduce",
        *([markdown_text(wording.environment_sentence(findings.computed_with))] if findings.computed_with else []),
        markdown_block(shown_command(findings.command)),
    ]
    return "\n\n".join(parts) + "\n"


def _generation(results: Sequence[GenerationResult]) -> list[str]:
    rows = [generation_section.cells(result) for result in results]
    numeric = [place > 0 for place in range(len(generation_section.HEADS))]
    return [
        "## Continuations",
        *map(markdown_text, generation_section.sentences(results)),
        table(list(generation_section.HEADS), rows, numeric=numeric),
        markdown_text(FOOT),
    ]


def _theory(theory: TheoryFindings, findings: Findings) -> list[str]:
    baseline, plots = findings.baseline_theory, findings.plots
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
