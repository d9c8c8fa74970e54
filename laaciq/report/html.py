"""The report of an evaluation as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from laaciq.engine.escaping import html_text, shown_command
from laaciq.evaluation.continuations import GenerationResult
from laaciq.evaluation.results import Evaluation, LanguageResult
from laaciq.evaluation.theory import TheoryFindings
from laaciq.planning.results import Planning
from laaciq.profiling.results import Profile
from laaciq.quantization.plan import PlanSet
from laaciq.report import wording
from laaciq.report.evaluation_plots import degradation_figure, ranks_figure
from laaciq.report.findings import Findings
from laaciq.report.generation_section import HEADS, cells, examples, sentences
from laaciq.report.page import (
    bullets,
    code,
    description_list,
    details,
    drawing,
    heading,
    page,
    paragraph,
    scrolling,
    table,
    verdict,
)
from laaciq.report.paired_cells import FOOT
from laaciq.report.plan_plots import agreement_figure, front_figure
from laaciq.report.profile_plots import CAPTIONS, profile_figures
from laaciq.report.theory_section import CLAIM, caption, relation_figure, relation_sentence, theory_sentences


def html_report(findings: Findings) -> str:
    """What quantization costs each language, as one HTML file."""
    evaluation, baseline, computed_with = findings.evaluation, findings.baseline, findings.computed_with
    return page(
        f"{wording.TITLE}: {evaluation.quantized}",
        [
            heading(wording.TITLE, 1),
            verdict(evaluation.verdict),
            paragraph(wording.baseline_sentence(evaluation, baseline) if baseline else ""),
            paragraph(wording.spread_sentence(findings.spread) if findings.spread else ""),
            heading("What was compared"),
            _facts(evaluation, findings.plans),
            heading("By language"),
            _degradation(evaluation, baseline),
            _table(evaluation, baseline),
            *(_generation(findings.generation) if findings.generation else []),
            heading("Disparity"),
            paragraph(" ".join(wording.disparity_sentences(evaluation))),
            paragraph(wording.disagreement(evaluation) or ""),
            _more_statistics(evaluation),
            _ranks(evaluation),
            *(_planning(findings.planning) if findings.planning else []),
            *(_theory(findings, findings.theory, findings.profile) if findings.theory and findings.profile else []),
            *(_profile(findings.profile) if findings.profile else []),
            heading("Definitions"),
            description_list((html_text(term), html_text(text)) for term, text in wording.definitions(evaluation)),
            heading("Reproduce"),
            paragraph(wording.environment_sentence(computed_with) if computed_with else ""),
            code(shown_command(findings.command)),
        ],
    )


def _degradation(evaluation: Evaluation, baseline: Evaluation | None) -> str:
    if not any(result.served for result in evaluation.languages):
        return ""
    band = (
        "The grey band is as wide as the noise floor: differences within it are noise. " if evaluation.disparity else ""
    )
    hollow = f"Hollow dots are the {wording.BASELINE}. " if baseline else ""
    caption = f"Degradation D by language with 95 % intervals, worst on top. {band}{hollow}"
    return drawing(degradation_figure(evaluation, baseline), f"{caption}The table below holds the same numbers.")


def _more_statistics(evaluation: Evaluation) -> str:
    sentences = wording.disparity_details(evaluation)
    return details("More statistics", paragraph(" ".join(sentences))) if sentences else ""


def _ranks(evaluation: Evaluation) -> str:
    if len(evaluation.judged) < 2:
        return ""
    caption = (
        "Rank of each language by each measure; the first pays most. Lines cross where measures disagree; a coloured line moves by at "
        "least a quarter of the ranks."
    )
    return drawing(ranks_figure(evaluation), caption)


def _generation(results: Sequence[GenerationResult]) -> list[str]:
    written = [pair for result in results for pair in examples(result)]
    return [
        heading("Continuations"),
        *map(paragraph, sentences(results)),
        table(HEADS, map(cells, results), label="Continuations by language"),
        paragraph(FOOT),
        details(
            "Examples",
            description_list((html_text(label), f"<bdi>{html_text(text)}</bdi>") for label, text in written),
        ),
    ]


def _planning(planning: Planning) -> list[str]:
    """How the plan was made: in words, predicted against measured losses, and what other sizes would cost."""
    parts = [
        heading("The plan"),
        paragraph(" ".join(wording.planning_sentences(planning))),
        drawing(
            agreement_figure(planning),
            "Predicted against measured loss, one dot per language and plan; on the line they agree.",
        ),
    ]
    if planning.front:
        caption = "Predicted loss of the worst-off language and predicted disparity of plans of other sizes."
        parts.append(drawing(front_figure(planning), caption))
    return parts


def _theory(findings: Findings, theory: TheoryFindings, profile: Profile) -> list[str]:
    baseline, evaluation = findings.baseline_theory, findings.evaluation
    parts = [heading("What this means for the theory"), paragraph(CLAIM), bullets(theory_sentences(theory))]
    if baseline is not None:
        parts.append(paragraph(f"With the {wording.BASELINE}: {' '.join(map(relation_sentence, baseline.relations))}"))
    return parts + [
        drawing(relation_figure(relation.quantity, profile, evaluation), caption(relation))
        for relation in theory.relations
        if relation.r is not None
    ]


def _profile(profile: Profile) -> list[str]:
    parts = [heading("Weights and activations"), paragraph(wording.EXPLANATION)]
    if profile.sampled:
        # What languages do to the blocks was read from a few passages: enough to see which are served, too few to explain a loss.
        parts.append(paragraph(wording.sampled_sentence(profile)))
        figures = {name: figure for name, figure in profile_figures(profile).items() if name != "fractions"}
    else:
        figures = profile_figures(profile)
    return parts + [drawing(figure, CAPTIONS[name]) for name, figure in figures.items()]


def _facts(evaluation: Evaluation, plans: PlanSet | None) -> str:
    def shown(fact: wording.Fact) -> str:
        return f"<code><bdi>{html_text(fact.value)}</bdi></code>" if fact.verbatim else html_text(fact.value)

    return description_list((html_text(fact.label), shown(fact)) for fact in wording.facts(evaluation, plans))


def _table(evaluation: Evaluation, baseline: Evaluation | None) -> str:
    columns = wording.columns(evaluation, baseline)
    heads = "".join(f'<th scope="col"{_kind(column)}>{html_text(column.heading)}</th>' for column in columns)
    scales = {c.measure: _largest(evaluation, c.measure) for c in columns if c.measure}
    rows = "\n".join(_row(result, columns, scales) for result in evaluation.worst_first)
    return scrolling(
        f"<table>\n<caption>{html_text(wording.table_caption(evaluation))}</caption>\n"
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>",
        "Table by language",
    )


def _row(result: LanguageResult, columns: list[wording.ResultColumn], scales: dict[str, float]) -> str:
    state = "not-served" if not result.served else "collapsed" if result.collapsed else "judged"
    first, *others = columns
    cells = [f'<th scope="row"><bdi>{html_text(first.cell(result))}</bdi></th>']
    for column in others:
        attributes = _kind(column) if column.measure is None else _bar(result, column.measure, scales[column.measure])
        cells.append(f"<td{attributes}>{html_text(column.cell(result))}</td>")
    return f'<tr class="{state}">{"".join(cells)}</tr>'


def _kind(column: wording.ResultColumn) -> str:
    return ' class="number"' if column.numeric else ""


def _bar(result: LanguageResult, measure: str, largest: float) -> str:
    """A bar behind the number, as long as its share of the largest; a collapsed language fills the cell of D."""
    estimate = getattr(result, measure)
    if not result.served or (result.collapsed and measure != "degradation") or largest <= 0:
        return ' class="number"'
    share = 1.0 if estimate is None else min(1.0, max(0.0, estimate.value / largest))
    return f' class="number bar" style="--share: {100 * share:.1f}%"'


def _largest(evaluation: Evaluation, measure: str) -> float:
    return max((getattr(result, measure).value for result in evaluation.judged), default=1.0)
