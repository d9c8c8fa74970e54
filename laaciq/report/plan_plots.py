"""The figures of a planning: does the sensitivity model predict what is measured, and what would other sizes cost?"""

from __future__ import annotations

import plotly.graph_objects as go

from laaciq.allocation.results import Planning
from laaciq.report.plots import BLUE, GREY, VERMILION, styled

_ROWS = 14


def agreement_figure(planning: Planning) -> go.Figure:
    """Predicted against measured losses of the random plans and of the planned ones, on logarithmic axes."""
    figure = go.Figure()
    exchange = planning.exchange
    pairs = [
        (code, p, e * m)
        for probe in planning.probes
        for code, p, e, m in zip(
            planning.languages, probe.predicted, exchange, probe.measured.divergence, strict=True
        )
    ]  # fmt: skip
    planned = [
        (code, p, m)
        for own in planning.rounds
        for code, p, m in zip(planning.languages, own.predicted, own.losses, strict=True)
    ]
    # Random plans were predicted before the languages' scales were known: one factor for all puts them on the same axis.
    factor = sum(m for *_, m in pairs) / max(sum(p for _, p, _ in pairs), 1e-12)
    figure.add_trace(_dots([(c, factor * p, m) for c, p, m in pairs], "random plans", GREY, "circle-open"))
    figure.add_trace(_dots(planned, "planned", VERMILION, "circle"))
    shown = [value for trace in figure.data for value in (*trace.x, *trace.y) if value > 0]
    ends = [min(shown, default=0.01), max(shown, default=1.0)]
    figure.add_trace(go.Scatter(x=ends, y=ends, mode="lines", line={"color": BLUE, "dash": "dot"}, name="equal"))
    figure.update_xaxes(type="log", title={"text": "predicted, nats a token"})
    figure.update_yaxes(type="log", title={"text": "measured, nats a token"})
    return styled(figure, _ROWS)


def front_figure(planning: Planning) -> go.Figure:
    """Size against the worst language's predicted loss and against disparity."""
    figure = go.Figure()
    sizes = [point.bits_per_weight for point in planning.front]
    for name, values, colour in (
        ("worst-off language, ΔNLL", [point.worst for point in planning.front], VERMILION),
        ("disparity of D", [point.disparity for point in planning.front], BLUE),
    ):
        figure.add_trace(go.Scatter(x=sizes, y=values, mode="lines+markers", line={"color": colour}, name=name))
    figure.update_xaxes(title={"text": "bits a weight"})
    figure.update_yaxes(type="log")
    return styled(figure, _ROWS)


def _dots(pairs: list[tuple[str, float, float]], name: str, colour: str, symbol: str) -> go.Scatter:
    return go.Scatter(
        x=[predicted for _, predicted, _ in pairs],
        y=[measured for _, _, measured in pairs],
        mode="markers",
        marker={"color": colour, "symbol": symbol},
        name=name,
        hovertext=[code for code, *_ in pairs],
        hoverinfo="text",
    )
