"""The report of the lab: the table of verdicts, and a figure for each claim."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from laaciq.engine.escaping import markdown_text, printable, shown_command
from laaciq.lab.findings import Bars, Finding, Points
from laaciq.lab.verdicts import ClaimRow, Decision, LabResult
from laaciq.report.figures import BLUE, GREY, name_rows, new_figure, rows_height, styled
from laaciq.report.page import bullets, code, drawing, heading, page, paragraph, table

HEADS = ("claim", "model", "verdict", "effect", "corrected p", "power", "languages")
_SIDES = {"below": "below", "above": "above", "within": "within ±"}


def p_words(decision: Decision) -> str:
    if decision.corrected_p is None:
        return ""
    return "< 0.001" if decision.corrected_p < 0.001 else f"{decision.corrected_p:.3f}"


def effect_words(decision: Decision) -> str:
    """`r(κ_eff, D) −0.21 [−0.52, 0.14], claimed below 0`; without a finding, the reason."""
    finding = decision.finding
    if finding is None:
        return decision.reason
    return f"{finding.statistic} {interval_words(decision)}, claimed {claimed_words(finding)}"


def claimed_words(finding: Finding) -> str:
    if finding.side == "within" and finding.scale == "log":
        return f"between {_number(1 / finding.threshold)} and {_number(finding.threshold)}"
    return f"{_SIDES[finding.side]} {_number(finding.threshold)}".replace("± ", "±")


def interval_words(decision: Decision) -> str:
    """The value and its interval alone; empty without a finding."""
    if decision.finding is None:
        return ""
    estimate = decision.finding.estimate
    ends = "" if estimate.low == estimate.high else f" [{_number(estimate.low)}, {_number(estimate.high)}]"
    return f"{_number(estimate.value)}{ends}"


def _number(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


def cells(result: LabResult) -> Iterator[list[str]]:
    """One row per claim and model, and one for all models together."""
    for row in result.rows:
        for model, decision in decisions(row):
            finding = decision.finding
            counted = "" if finding is None or not finding.languages else str(finding.languages)
            power = "" if finding is None else f"{finding.power:.2f}"
            yield [row.name, model, decision.verdict, effect_words(decision), p_words(decision), power, counted]


def decisions(row: ClaimRow) -> list[tuple[str, Decision]]:
    return [*row.decisions.items(), *([("pooled", row.pooled)] if row.pooled else [])]


def side_by_side(result: LabResult) -> Iterator[list[str]]:
    """Heads, and one row per claim that has a finding: the effect under each model, with the verdict unless it is undecided. What is claimed
    may depend on the model; it is then named for each.
    """
    yield ["claim", "claimed", *result.models, "pooled"]
    for row in result.rows:
        findings = [decision.finding for decision in row.decisions.values() if decision.finding is not None]
        if findings:
            by_model = [_cell(row.decisions[model]) for model in result.models]
            claimed = "; ".join(dict.fromkeys(map(claimed_words, findings)))
            yield [row.name, claimed, *by_model, "" if row.pooled is None else _cell(row.pooled)]


def _cell(decision: Decision) -> str:
    if decision.finding is None:
        return "–" if decision.verdict == "not applicable" else decision.verdict
    verdict = "" if decision.verdict == "undecided" else f"{decision.verdict} "
    return f"{verdict}{interval_words(decision)}"


def title(result: LabResult) -> str:
    return f"Claims of the theory on {', '.join(result.models)}"


def introduction(result: LabResult) -> str:
    measured = "; ".join(f"{model}: {len(codes)} languages" for model, codes in result.languages.items())
    quick = " Measured quickly (--quick): intervals are wider than they need to be." if result.quick else ""
    return (
        f"Texts: {result.texts}; {measured}.{quick} A claim is supported if its p, corrected for the number of findings that have noise, is "
        "below 0.05 and the effect lies where the claim says; refuted if p is below 0.05 and the effect lies beyond the threshold; undecided "
        "otherwise."
    )


def lab_markdown(result: LabResult) -> str:
    lines = [f"# {markdown_text(title(result))}", "", markdown_text(introduction(result)), ""]
    lines += [f"| {' | '.join(HEADS)} |", f"|{'---|' * len(HEADS)}"]
    lines += [f"| {' | '.join(map(markdown_text, row))} |" for row in cells(result)]
    if len(result.models) > 1:
        heads, *rows = side_by_side(result)
        lines += [
            "",
            "## Models side by side",
            "",
            f"| {' | '.join(map(markdown_text, heads))} |",
            f"|{'---|' * len(heads)}",
        ]
        lines += [f"| {' | '.join(map(markdown_text, row))} |" for row in rows]
    lines += ["", "## Claims", ""]
    lines += [markdown_text(f"{row.name}: {row.words} ({row.place}) Rule: {row.rule}") + "\n" for row in result.rows]
    lines += ["## Reproduce", "", f"    {shown_command(result.command)}", ""]
    return "\n".join(lines)


def lab_html(result: LabResult) -> str:
    body = [
        heading(title(result), 1),
        paragraph(introduction(result)),
        table(HEADS, cells(result), label="Verdicts", text_columns=4),
    ]
    for row in result.rows:
        body += _claim_part(row)
    return page(title(result), [*body, heading("Reproduce"), code(shown_command(result.command))])


def _claim_part(row: ClaimRow) -> list[str]:
    parts = [heading(row.name), paragraph(f"“{row.words}” ({row.place})"), paragraph(f"Rule: {row.rule}")]
    lines = []
    for model, decision in decisions(row):
        note = decision.needed if decision.finding is None else decision.finding.note
        lines.append(f"{model}: {decision.verdict}. {effect_words(decision)}. {note}".strip())
    parts.append(bullets(lines))
    for model, decision in row.decisions.items():
        if decision.finding is not None:
            parts.append(drawing(claim_figure(decision.finding), f"{row.name}, {model}"))
    return parts


@styled
def claim_figure(finding: Finding) -> Figure:
    """The finding's plot; without one, the statistic with its interval and the threshold."""
    if isinstance(finding.plot, Points):
        return _points(finding.plot)
    if isinstance(finding.plot, Bars):
        return _bars(finding.plot)
    figure = _bars(Bars(names=[finding.statistic], values=[finding.estimate], label=finding.statistic))
    figure.axes[0].axvline(finding.threshold, color=GREY, linestyle="--", linewidth=1)
    return figure


def _points(plot: Points) -> Figure:
    figure, axes = new_figure(4.0)
    axes.plot(plot.x, plot.y, "o", color=BLUE, alpha=0.7, markersize=5)
    for x, y, name in zip(plot.x, plot.y, plot.names, strict=True):
        axes.annotate(printable(name), (x, y), fontsize=7, xytext=(3, 3), textcoords="offset points")
    axes.set(xlabel=plot.x_label, ylabel=plot.y_label)
    return figure


def _bars(plot: Bars) -> Figure:
    figure, axes = new_figure(rows_height(len(plot.names)))
    for place, estimate in enumerate(plot.values):
        bars = [[max(0.0, estimate.value - estimate.low)], [max(0.0, estimate.high - estimate.value)]]
        axes.errorbar(estimate.value, place, xerr=bars, fmt="o", color=BLUE, markersize=6, capsize=2)
    name_rows(axes, plot.names)
    axes.set_xlabel(plot.label)
    return figure
