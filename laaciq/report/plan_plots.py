"""The figures of a planning: does the sensitivity model predict what is measured, and what would other sizes cost?"""

from __future__ import annotations

import plotly.graph_objects as go

from laaciq.planning.results import Planning
from laaciq.report.plots import BLUE, GREY, VERMILION, styled

_ROWS = 14


def agreement_figure(planning: Planning) -> go.Figure:
    """Predicted against measured losses, of the plans that predictions were put to scale by and of those that came after."""
    codes, scale, exchange = planning.languages, planning.scale, planning.nll_per_kl
    scaled_by = [
        (code, s * p, e * m)
        for probe in planning.probes
        for code, s, p, e, m in zip(codes, scale, probe.predicted, exchange, probe.measured.divergence, strict=True)
    ]
    # The first round is one of the probes.
    after = [
        (code, p, m) for own in planning.rounds[1:] for code, p, m in zip(codes, own.predicted, own.losses, strict=True)
    ]
    figure = go.Figure()
    figure.add_trace(_dots(scaled_by, "put to scale by", GREY, "circle-open"))
    figure.add_trace(_dots(after, "predicted, then measured", VERMILION, "circle"))
    shown = [value for _, *pair in (*scaled_by, *after) for value in pair if value > 0]
    ends = [min(shown, default=0.01), max(shown, default=1.0)]
    figure.add_trace(go.Scatter(x=ends, y=ends, mode="lines", line={"color": BLUE, "dash": "dot"}, name="equal"))
    figure.update_xaxes(type="log", title={"text": "predicted, nats a token"}, nticks=6)
    figure.update_yaxes(type="log", title={"text": "measured, nats a token"}, nticks=6, automargin=True)
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
    figure.update_yaxes(type="log", nticks=6, automargin=True)
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
