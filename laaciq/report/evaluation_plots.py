"""The figures of an evaluation: D by language, and the rank of each language under every measure."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from laaciq.engine.escaping import printable
from laaciq.evaluation.results import Evaluation, LanguageResult
from laaciq.report.figures import (
    BLUE,
    COLOURS,
    GREY,
    MARKERS,
    VERMILION,
    legend_below,
    name_rows,
    new_figure,
    rows_height,
    styled,
)
from laaciq.report.wording import MEASURES


@styled
def degradation_figure(evaluation: Evaluation, baseline: Evaluation | None = None) -> Figure:
    """D by language with its interval, worst on top; the band is as wide as the noise floor. Hollow dots are the baseline."""
    shown = [r for r in evaluation.worst_first if r.served]
    rows = {r.language: row for row, r in enumerate(shown)}
    figure, axes = new_figure(rows_height(len(shown)))
    if evaluation.disparity is not None and evaluation.summary.mean is not None:
        centre, half_width = 100 * evaluation.summary.mean, 50 * evaluation.disparity.noise_floor
        axes.axvspan(centre - half_width, centre + half_width, color=GREY, alpha=0.25, linewidth=0, label="noise floor")
    for script, (colour, marker) in _marks(shown).items():
        _draw_intervals(axes, [r for r in evaluation.judged if r.script == script], rows, colour, marker)
    if baseline is not None:
        beside = [(r.degradation, rows[r.language]) for r in baseline.judged if r.language in rows]
        points = [(100 * d.value, row) for d, row in beside if d is not None]
        axes.plot(
            [x for x, _ in points], [y for _, y in points], "o", color=GREY, markerfacecolor="none", label="baseline"
        )
    axes.axvline(0, color=GREY, linewidth=0.8)
    for result in shown:
        if result.collapsed:
            # At the right edge, since this axis has no number for the loss.
            axes.text(
                1, rows[result.language], "collapsed ▶", color=VERMILION, ha="right", va="center",
                transform=axes.get_yaxis_transform(),
            )  # fmt: skip
    name_rows(axes, [r.name for r in shown])
    axes.set_xlabel("degradation D, %")
    legend_below(figure)
    return figure


def _draw_intervals(axes: Axes, results: list[LanguageResult], rows: dict[str, int], colour: str, marker: str) -> None:
    shown = [(r, r.degradation) for r in results if r.degradation is not None]
    if not shown:
        return
    axes.errorbar(
        [100 * d.value for _, d in shown],
        [rows[r.language] for r, _ in shown],
        # An interval may lie beside its estimate; a bar has no negative length.
        xerr=[
            [max(0.0, 100 * (d.value - d.low)) for _, d in shown],
            [max(0.0, 100 * (d.high - d.value)) for _, d in shown],
        ],
        fmt=marker, color=colour, markersize=6, elinewidth=1.5, capsize=2, label=printable(shown[0][0].script),
    )  # fmt: skip


def _marks(results: list[LanguageResult]) -> dict[str, tuple[str, str]]:
    """A colour and a marker for every script, the most frequent first."""
    scripts = [r.script for r in results]
    by_count = sorted(set(scripts), key=lambda script: (-scripts.count(script), script))
    return {script: (COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]) for i, script in enumerate(by_count)}


@styled
def ranks_figure(evaluation: Evaluation) -> Figure:
    """The rank of each language under every measure, the first pays most: lines that cross are disagreement."""
    ranked = evaluation.judged
    measures = [m for m in MEASURES if all(getattr(r, m) is not None for r in ranked)]
    ranks = {measure: _ranks(ranked, measure) for measure in measures}
    figure, axes = new_figure(rows_height(len(ranked)))
    labelled = set()
    for result in ranked:
        line = [ranks[measure][result.language] for measure in measures]
        label, colour, width = _line_style(line, len(ranked))
        axes.plot(
            range(len(line)),
            line,
            "o-",
            color=colour,
            linewidth=width,
            markersize=4,
            label="_" * (label in labelled) + label,
        )
        labelled.add(label)
    name_rows(axes, [r.name for r in ranked])
    axes.set_xticks(range(len(measures)), [MEASURES[measure] for measure in measures])
    axes.xaxis.tick_top()
    axes.tick_params(axis="x", length=0)
    right = axes.twinx()
    right.grid(visible=False)
    name_rows(right, [r.name for r in sorted(ranked, key=lambda r: ranks[measures[-1]][r.language])])
    for side in (axes, right):
        side.spines[:].set_visible(False)
    legend_below(figure)
    return figure


def _ranks(results: list[LanguageResult], measure: str) -> dict[str, int]:
    ordered = sorted(results, key=lambda r: -getattr(r, measure).value)
    return {r.language: rank for rank, r in enumerate(ordered)}


def _line_style(ranks: list[int], languages: int) -> tuple[str, str, float]:
    """Label, colour and width: a line stands out if a measure moves the language by a quarter of the ranks, and by at least two."""
    move = max((ranks[0] - rank for rank in ranks), key=abs)
    if abs(move) < max(2, languages / 4):
        return "similar rank", GREY, 1.0
    return ("worse off than by D", VERMILION, 2.0) if move > 0 else ("better off than by D", BLUE, 2.0)
