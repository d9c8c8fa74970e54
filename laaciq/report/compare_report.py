"""The report of a comparison: one HTML page that needs nothing else."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go

from laaciq.corpus import language
from laaciq.errors import UnknownLanguage
from laaciq.report.plots import COLOURS, SYMBOLS, styled
from laaciq.studies.comparison import Comparison, Made, Row

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.15rem 0.7rem; text-align: right; border-bottom: 1px solid color-mix(in srgb, currentColor 15%, transparent); }
th:first-child, td:first-child { text-align: left; }
.wide { overflow-x: auto; } pre { overflow-x: auto; }
"""
_ROWS = 18
# A logarithmic axis has no zero: losses below this are drawn here.
_LEAST = 1e-3
HEADS = (
    "method",
    "bits a weight",
    "whole model",
    "worst D",
    "95 %",
    "language",
    "mean D",
    "disparity",
    "seconds",
    "left alone",
)
FOOT = (
    "Bits a weight are counted in full (codes, scales, zero points, padding), what was left alone at 16: over the linear layers of the "
    "blocks, and over the whole model. D is the relative rise in perplexity, disparity is max D − min D; * is within the noise floor."
)


def cells(row: Row) -> list[str]:
    """Of a row that was measured, under `HEADS`."""
    made, worst, found = row.made, row.worst, row.evaluation
    if made is None or found is None:
        return [row.method, *[""] * (len(HEADS) - 1)]
    loss = worst.degradation if worst else None
    disparity = found.disparity
    return [
        row.method,
        f"{made.block_bits_per_weight:.3f}",
        f"{made.model_bits_per_weight:.2f}",
        ("collapsed" if loss is None else _percent(loss.value)) if worst else "–",
        f"{_number(loss.low)} to {_number(loss.high)}" if loss else "",
        worst.language if worst else "",
        _percent(found.summary.mean),
        "–" if disparity is None else f"{_percent(disparity.plug_in.value)}{'' if disparity.beyond_noise else ' *'}",
        f"{made.seconds:.0f}",
        f"{len(made.left_alone)} of {made.layers}" if made.left_alone else "–",
    ]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{_number(value)} %"


def _number(share: float) -> str:
    """In percent; of hundreds the decimals say nothing."""
    return f"{100 * share:z.{0 if share >= 1 else 1}f}"


def title(found: Comparison) -> str:
    return f"{found.model} at {found.bits} bits, calibrated on {calibration_name(found)}"


def calibration_name(found: Comparison) -> str:
    if found.calibration == "all":
        return "all languages"
    try:
        return language(found.calibration).name
    except UnknownLanguage:  # where the user's own texts are
        return found.calibration


def compare_html(found: Comparison) -> str:
    drawn = size_figure(found).to_html(full_html=False, include_plotlyjs=True, div_id="size-figure")
    measured = "".join(_table_row(cells(row), "td") for row in found.measured)
    settings = "".join(f"<li>{escape(_described(row.method, row.made))}</li>" for row in found.measured if row.made)
    failed = "".join(f"<li>{escape(f'{row.method}: {row.reason}')}</li>" for row in found.failed)
    heading = escape(title(found))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{heading}</title><style>{_STYLE}</style><h1>{heading}</h1>"
        f"<p>{len(found.languages)} languages, up to {found.passages} test passages each; texts: {escape(found.texts)}. {escape(FOOT)}</p>"
        f"<h2>The worst-off language's loss, by size</h2>{drawn}"
        f'<h2>All methods</h2><div class="wide" tabindex="0"><table>{_table_row(list(HEADS), "th")}{measured}</table></div>'
        f"<h2>How each was made</h2><ul>{settings}</ul>"
        + (f"<h2>Without a result</h2><ul>{failed}</ul>" if failed else "")
        + f"<h2>Reproduce</h2><pre><code>{escape(found.command)}</code></pre></html>"
    )


def size_figure(found: Comparison) -> go.Figure:
    """ΔNLL of the worst-off language against bits a weight in the blocks, a mark a method."""
    figure = go.Figure()
    for index, row in enumerate(found.measured):
        if row.made is None or row.worst is None:
            continue
        loss = row.worst.loss
        value = max(loss.value, _LEAST)
        figure.add_trace(
            go.Scatter(
                x=[row.made.block_bits_per_weight],
                y=[value],
                error_y={
                    "array": [max(loss.high - value, 0.0)],
                    "arrayminus": [max(value - max(loss.low, _LEAST), 0.0)],
                    "thickness": 1.5,
                    "width": 3,
                },
                mode="markers",
                name=row.method,
                marker={"color": COLOURS[index % len(COLOURS)], "symbol": SYMBOLS[index % len(SYMBOLS)], "size": 11},
                hovertext=[
                    f"{escape(row.method)}: {loss.value:.3f} [{loss.low:.3f}, {loss.high:.3f}], {row.worst.name}, "
                    f"{row.made.block_bits_per_weight:.3f} bits a weight"
                ],
                hoverinfo="text",
            )
        )
    figure.update_xaxes(title={"text": "bits a weight, linear layers of the blocks"})
    figure.update_yaxes(
        type="log", title={"text": "ΔNLL of the worst-off language, nats a token"}, nticks=6, automargin=True
    )
    return styled(figure, _ROWS)


def _described(method: str, made: Made) -> str:
    left = f"; left alone: {', '.join(made.left_alone)}" if made.left_alone else ""
    notes = "".join(f" Note: {note}" for note in made.notes)
    return f"{method}: {made.by}, {made.settings}{left}.{notes}"


def _table_row(values: list[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(value)}</{tag}>' for value in values)}</tr>"
