"""The report of a comparison of methods: one HTML page."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from laaciq.corpus import language
from laaciq.engine.escaping import printable, shown_command
from laaciq.errors import UnknownLanguage
from laaciq.evaluation.verdict import rough_intervals
from laaciq.profiling.results import Profile
from laaciq.report.figures import COLOURS, MARKERS, label_plainly, legend_below, new_figure, styled
from laaciq.report.page import bullets, code, drawing, heading, page, paragraph, table
from laaciq.report.theory_section import (
    CLAIM,
    caption,
    relation_cells,
    relation_figure,
    relation_sentence,
    theory_sentences,
)
from laaciq.studies.comparison import Comparison, Made, Row

# A logarithmic axis has no zero: losses below this are drawn here.
_LEAST = 1e-3
HEADS = (
    "method",
    "bits per weight",
    "whole model",
    "worst D",
    "95 %",
    "language",
    "mean D",
    "disparity",
    "seconds",
    "left alone",
)
THEORY_HEADS = ("method", "r(R̂, D)", "p", "r(κ_eff, D)", "p", "g, low exposure", "g, other scripts")
FOOT = (
    "Bits per weight count codes, scales, zero points and padding, and 16 bits for what was left alone: over the weights of the blocks, "
    "and over the whole model. D is the relative increase in perplexity; the interval is that of the largest D of any language. Disparity is "
    "max D − min D; * is within the noise floor."
)


def footnotes(comparison: Comparison) -> list[str]:
    """Below the table."""
    fewest = min((row.evaluation.fewest_documents for row in comparison.rows if row.evaluation), default=0)
    rough = rough_intervals(fewest)
    return [FOOT, rough] if rough else [FOOT]


def cells(row: Row) -> list[str]:
    """Of a method that was measured, under `HEADS`."""
    made, worst, evaluation = row.made, row.worst, row.evaluation
    if made is None or evaluation is None:
        return [row.method, *[""] * (len(HEADS) - 1)]
    loss = None if worst is None or worst.collapsed else evaluation.worst
    disparity = evaluation.disparity
    return [
        row.method,
        f"{made.block_bits_per_weight:.3f}",
        f"{made.model_bits_per_weight:.2f}",
        ("collapsed" if loss is None else _percent(loss.value)) if worst else "–",
        f"{_number(loss.low)} to {_number(loss.high)}" if loss else "",
        worst.language if worst else "",
        _percent(evaluation.summary.mean),
        "–" if disparity is None else f"{_percent(disparity.plug_in.value)}{'' if disparity.beyond_noise else ' *'}",
        f"{made.seconds:.0f}",
        f"{len(made.left_alone)} of {made.layers}" if made.left_alone else "–",
    ]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{_number(value)} %"


def _number(share: float) -> str:
    """In percent, without decimals from 100 % on."""
    return f"{100 * share:z.{0 if share >= 1 else 1}f}"


def title(comparison: Comparison) -> str:
    return f"{comparison.model} at {comparison.bits} bits, calibrated on {_calibration_name(comparison)}"


def _calibration_name(comparison: Comparison) -> str:
    if comparison.calibration == "all":
        return "all languages"
    try:
        return language(comparison.calibration).name
    except UnknownLanguage:  # a folder or file of the user's
        return comparison.calibration


def compare_html(comparison: Comparison, profile: Profile | None = None) -> str:
    """The page. A `profile` adds plots of its quantities against the losses of the best method."""
    failed = [f"{row.method}: {row.reason}" for row in comparison.failed]
    return page(
        title(comparison),
        [
            heading(title(comparison), 1),
            paragraph(
                f"{len(comparison.languages)} languages, up to {comparison.passages} test passages each; texts: {comparison.texts}."
            ),
            heading("Loss of the worst-off language, by size"),
            drawing(
                size_figure(comparison),
                "The largest ΔNLL of any language with its 95 % interval, against bits per weight in the blocks. Losses below "
                f"{_LEAST:g} are drawn there.",
            ),
            heading("All methods"),
            table(HEADS, map(cells, comparison.measured), label="All methods"),
            *map(paragraph, footnotes(comparison)),
            *_theory_part(comparison, profile),
            heading("How each was made"),
            bullets(_described(row.method, row.made) for row in comparison.measured if row.made),
            *([heading("Without a result"), bullets(failed)] if failed else []),
            heading("Reproduce"),
            code(shown_command(comparison.command)),
        ],
    )


def relation_lines(comparison: Comparison) -> list[str]:
    """r(R̂, D) and r(κ_eff, D) of each method, a line each; one line alone where no method has the relation."""
    lines: list[str] = []
    reasons: dict[str, None] = {}
    for row in comparison.measured:
        for relation in comparison.theory[row.method].relations if row.method in comparison.theory else []:
            if relation.r is None:
                reasons[relation_sentence(relation)] = None
            else:
                lines.append(f"{row.method}: {relation_sentence(relation)}")
    return [*reasons, *lines]


def _theory_part(comparison: Comparison, profile: Profile | None) -> list[str]:
    """What the losses of each method mean for the theory."""
    rows = [row for row in comparison.measured if row.method in comparison.theory]
    if not rows:
        return []
    cells = [[row.method, *relation_cells(comparison.theory[row.method])] for row in rows]
    parts = [
        heading("What this means for the theory"),
        paragraph(CLAIM),
        table(THEORY_HEADS, cells, label="The theory, by method"),
        bullets(f"{row.method}: {' '.join(theory_sentences(comparison.theory[row.method]))}" for row in rows),
    ]
    best, evaluation = comparison.theory[rows[0].method], rows[0].evaluation
    if profile is None or evaluation is None:
        return parts
    return parts + [
        drawing(relation_figure(relation.quantity, profile, evaluation), f"{rows[0].method}. {caption(relation)}")
        for relation in best.relations
        if relation.r is not None
    ]


@styled
def size_figure(comparison: Comparison) -> Figure:
    """The largest ΔNLL of any language with its interval against bits per weight in the blocks, one mark per method."""
    figure, axes = new_figure(5.0)
    for index, row in enumerate(comparison.measured):
        if row.made is None or row.worst is None or row.evaluation is None:
            continue
        loss, largest = row.worst.loss, row.evaluation.worst
        low, high = loss.low, loss.high
        if largest is not None and not row.worst.collapsed:
            low, high = (math.log1p(max(0.0, end)) for end in (largest.low, largest.high))
        value = max(loss.value, _LEAST)
        axes.errorbar(
            row.made.block_bits_per_weight,
            value,
            yerr=[[max(value - max(low, _LEAST), 0.0)], [max(high - value, 0.0)]],
            fmt=MARKERS[index % len(MARKERS)], color=COLOURS[index % len(COLOURS)], markersize=7, capsize=2, label=printable(row.method),
        )  # fmt: skip
    axes.set_yscale("log")
    label_plainly(axes.yaxis)
    axes.set_xlabel("bits per weight in the blocks")
    axes.set_ylabel("ΔNLL of the worst-off language, nats per token")
    legend_below(figure)
    return figure


def _described(method: str, made: Made) -> str:
    left = f"; left alone: {', '.join(made.left_alone)}" if made.left_alone else ""
    notes = "".join(f" Note: {note}" for note in made.notes)
    return f"{method}: {made.by}, {made.settings}{left}.{notes}"
