"""The figures of a report. Colours and backgrounds work on white and on black; nothing is told by colour alone."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go

from laaciq.evaluation.degradation import COLLAPSE_FACTOR
from laaciq.evaluation.results import Evaluation, LanguageResult
from laaciq.report.wording import MEASURES, USUAL, percent_estimate

# Okabe & Ito (2008), without the black and the yellow, which vanish on one of the two backgrounds, and with a grey.
BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#808080"
COLOURS = (BLUE, VERMILION, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", GREY)
# Five symbols against seven colours: 35 scripts, each with a pair of its own.
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x")
_FAINT = "rgba(128, 128, 128, 0.25)"
_ROW_PIXELS, _TOP_PIXELS, _BOTTOM_PIXELS = 22, 50, 120


def degradation_figure(evaluation: Evaluation, baseline: Evaluation | None = None) -> go.Figure:
    """D by language with its interval, worst on top; the band is as wide as the noise floor. Hollow dots are today's default."""
    shown = [r for r in evaluation.worst_first if r.served]
    rows = {r.language: row for row, r in enumerate(shown)}
    figure = go.Figure()
    for script, mark in _marks(shown).items():
        members = [r for r in evaluation.judged if r.script == script]
        if members:
            figure.add_trace(_dots(members, [rows[r.language] for r in members], mark))
    if baseline is not None:
        figure.add_trace(_hollow([r for r in baseline.judged if r.language in rows], rows))
    for result in shown:
        if result.collapsed:
            _mark_collapsed(figure, rows[result.language])
    if evaluation.disparity is not None and evaluation.summary.mean is not None:
        _add_noise_band(figure, evaluation.summary.mean, evaluation.disparity.noise_floor)
    figure.update_xaxes(
        visible=bool(figure.data), title={"text": "degradation D"}, zeroline=True, zerolinecolor=GREY, ticksuffix=" %"
    )
    figure.update_yaxes(named_rows([r.name for r in shown]))
    return styled(figure, len(shown))


def companions_figure(evaluation: Evaluation) -> go.Figure:
    """The rank of each language under every measure, rank 1 pays most: lines that cross are disagreement."""
    ranked = evaluation.judged
    measures = [m for m in MEASURES if all(getattr(r, m) is not None for r in ranked)]
    ranks = {measure: _ranks(ranked, measure) for measure in measures}
    figure = go.Figure()
    for label, (colour, width) in _LINES.items():
        members = [r for r in ranked if _line([ranks[m][r.language] for m in measures], len(ranked)) == label]
        if members:
            figure.add_trace(_lines(members, ranks, {"color": colour, "width": width}, label))
    # An axis is drawn only where a trace belongs to it.
    figure.add_trace(go.Scatter(x=[0], y=[0], yaxis="y2", opacity=0, hoverinfo="skip", showlegend=False))
    last = sorted(ranked, key=lambda r: ranks[measures[-1]][r.language])
    figure.update_layout(
        xaxis={
            "tickvals": list(range(len(measures))),
            # In two lines: three of them fit on a phone.
            "ticktext": ["<br>".join(MEASURES[m].rsplit(" ", 1)) for m in measures],
            "tickangle": 0,
            "side": "top",
        },
        yaxis=named_rows([r.name for r in ranked]),
        yaxis2=named_rows([r.name for r in last]) | {"overlaying": "y", "side": "right", "showgrid": False},
    )
    return styled(figure, len(ranked))


def _marks(results: list[LanguageResult]) -> dict[str, dict[str, object]]:
    """A colour and a symbol for every script, the commonest first."""
    scripts = [r.script for r in results]
    commonest = sorted(set(scripts), key=lambda script: (-scripts.count(script), script))
    return {
        script: {"color": COLOURS[i % len(COLOURS)], "symbol": SYMBOLS[i % len(SYMBOLS)], "size": 9}
        for i, script in enumerate(commonest)
    }


def _dots(members: list[LanguageResult], rows: list[int], mark: dict[str, object]) -> go.Scatter:
    found = [(r.name, r.degradation) for r in members if r.degradation is not None]
    return go.Scatter(
        x=[100 * d.value for _, d in found],
        y=rows,
        error_x={
            "array": [100 * (d.high - d.value) for _, d in found],
            "arrayminus": [100 * (d.value - d.low) for _, d in found],
            "thickness": 1.5,
            "width": 3,
        },
        mode="markers",
        marker=mark,
        name=_safe(members[0].script),
        hovertext=[f"{_safe(name)}: {percent_estimate(d)}" for name, d in found],
        hoverinfo="text",
    )


def _hollow(members: list[LanguageResult], rows: dict[str, int]) -> go.Scatter:
    found = [(r, r.degradation) for r in members if r.degradation is not None]
    return go.Scatter(
        x=[100 * d.value for _, d in found],
        y=[rows[r.language] for r, _ in found],
        mode="markers",
        marker={"symbol": "circle-open", "color": GREY, "size": 8},
        name=USUAL.lower(),
        hovertext=[f"{_safe(r.name)}, {USUAL.lower()}: {percent_estimate(d)}" for r, d in found],
        hoverinfo="text",
    )


def _mark_collapsed(figure: go.Figure, row: int) -> None:
    """At the right edge: the loss has no number on this axis."""
    figure.add_annotation(
        x=1,
        xref="x domain",
        xanchor="right",
        y=row,
        text="collapsed ▶",
        font={"color": VERMILION},
        showarrow=False,
        hovertext=f"perplexity more than {COLLAPSE_FACTOR} times the original's",
    )


def _add_noise_band(figure: go.Figure, centre: float, width: float) -> None:
    left, right = 100 * (centre - width / 2), 100 * (centre + width / 2)
    figure.add_vrect(x0=left, x1=right, fillcolor=_FAINT, line_width=0, layer="below")
    # In the middle of the figure, not of the band: a narrow band at an edge would push the words out of sight.
    label = "grey band, as wide as the noise floor:<br>differences within this band are noise"
    figure.add_annotation(
        x=0.5, xref="x domain", y=1, yref="y domain", yanchor="bottom", text=label, showarrow=False, font={"size": 11}
    )


_ALIKE, _WORSE, _BETTER = "ranked alike", "worse off than D says", "better off than D says"
_LINES = {_ALIKE: (GREY, 1.0), _WORSE: (VERMILION, 2.0), _BETTER: (BLUE, 2.0)}


def _ranks(results: list[LanguageResult], measure: str) -> dict[str, int]:
    ordered = sorted(results, key=lambda r: -getattr(r, measure).value)
    return {r.language: rank for rank, r in enumerate(ordered)}


def _line(ranks: list[int], languages: int) -> str:
    """Which kind of line a language gets: it stands out where a companion moves it by a quarter of the ranks, two at least."""
    move = max((ranks[0] - rank for rank in ranks), key=abs)
    if abs(move) < max(2, languages / 4):
        return _ALIKE
    return _WORSE if move > 0 else _BETTER


def _lines(
    members: list[LanguageResult], ranks: dict[str, dict[str, int]], line: dict[str, object], label: str
) -> go.Scatter:
    x: list[int | None] = []
    y: list[int | None] = []
    texts: list[str] = []
    for result in members:
        own = [ranks[measure][result.language] for measure in ranks]
        told = ", ".join(f"{MEASURES[m]} {rank + 1}" for m, rank in zip(ranks, own, strict=True))
        # None breaks the line between two languages.
        x += [*range(len(own)), None]
        y += [*own, None]
        texts += [f"{_safe(result.name)}<br>rank by {told}"] * len(own) + [""]
    return go.Scatter(
        x=x, y=y, mode="lines+markers", line=line, marker={"size": 6}, name=label, hovertext=texts, hoverinfo="text"
    )


def named_rows(names: list[str]) -> dict[str, object]:
    """An axis with one named row a language, the first on top."""
    return {
        "tickvals": list(range(len(names))),
        "ticktext": [_safe(name) for name in names],
        "range": [len(names) - 0.5, -0.5],
        "automargin": True,
    }


def styled(figure: go.Figure, rows: int) -> go.Figure:
    plot_height = _ROW_PIXELS * max(rows, 2)
    figure.update_xaxes(automargin=True, fixedrange=True, gridcolor=_FAINT)
    figure.update_yaxes(fixedrange=True, gridcolor=_FAINT, zeroline=False, ticks="")
    return figure.update_layout(
        template="none",
        height=plot_height + _TOP_PIXELS + _BOTTOM_PIXELS,
        margin={"l": 10, "r": 10, "t": _TOP_PIXELS, "b": _BOTTOM_PIXELS},
        font={"family": "system-ui, sans-serif", "size": 13, "color": GREY},
        paper_bgcolor="rgba(0, 0, 0, 0)",
        plot_bgcolor="rgba(0, 0, 0, 0)",
        legend={"orientation": "h", "yanchor": "top", "y": -70 / plot_height, "x": 0},
        hoverlabel={"bgcolor": "white", "font": {"color": "black"}},
        # A finger on the figure scrolls the page.
        dragmode=False,
        showlegend=True,
    )


def _safe(text: str) -> str:
    """Plotly reads some HTML in its texts."""
    return escape(text, quote=False)
