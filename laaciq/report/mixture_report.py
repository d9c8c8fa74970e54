"""The report of a calibration study: one HTML page that needs nothing else."""

from __future__ import annotations

from html import escape

import numpy as np
import plotly.graph_objects as go

from laaciq.corpus import language
from laaciq.report.plots import COLOURS, SYMBOLS, named_rows, styled
from laaciq.studies.mixture_results import MixtureStudy, Setting
from laaciq.studies.recommendation import degradation, degradation_interval, left_out_sentence

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.15rem 0.7rem; text-align: right; border-bottom: 1px solid color-mix(in srgb, currentColor 15%, transparent); }
th:first-child, td:first-child { text-align: left; }
.wide { overflow-x: auto; }
"""
_ROWS = 14


def mixture_html(study: MixtureStudy) -> str:
    by_tokens = tokens_figure(study).to_html(full_html=False, include_plotlyjs=True, div_id="tokens-figure")
    by_language = languages_figure(study).to_html(full_html=False, include_plotlyjs=False, div_id="languages-figure")
    grid = f"{study.bits} bits, group {study.group_size}, {'symmetric' if study.symmetric else 'affine'}"
    left_out = "".join(f"<li>{escape(left_out_sentence(own))}</li>" for own in study.left_out)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Calibration text for {escape(study.model)}</title><style>{_STYLE}</style>"
        f"<h1>Calibration text for {escape(study.model)}</h1><p><strong>{escape(study.recommendation.sentence)}</strong></p>"
        f"<p>Second-order rounding, {grid}; texts: {escape(study.texts)}; chosen on up to {study.validation_passages} validation "
        f"passages a language, measured on up to {study.test_passages} test passages. Intervals of 95 % cover the test passages, "
        f"not the draw of calibration text.</p>"
        f"<h2>The worst-off language, by tokens and mix</h2>{by_tokens}"
        f"<h2>Every language, with all passages</h2>{by_language}<h2>A language left out</h2><ul>{left_out}</ul>"
        f'<h2>All settings</h2><div class="wide" tabindex="0">{_table(study)}</div></html>'
    )


def tokens_figure(study: MixtureStudy) -> go.Figure:
    """D of the worst language against calibration tokens, a line a mix; settings in which a language collapsed are left out."""
    figure = go.Figure()
    for index, mix in enumerate(dict.fromkeys(own.mix for own in study.settings)):
        shown = [own for own in study.settings if own.mix == mix and own.disparity is not None]
        worst = [[100 * np.expm1(v) for v in (own.worst.value, own.worst.low, own.worst.high)] for own in shown]
        figure.add_trace(
            go.Scatter(
                x=[own.tokens for own in shown],
                y=[value for value, _, _ in worst],
                error_y={
                    "array": [high - value for value, _, high in worst],
                    "arrayminus": [value - low for value, low, _ in worst],
                    "thickness": 1.5,
                    "width": 3,
                },
                mode="lines+markers",
                name=study.name(mix),
                line={"color": COLOURS[index]},
                marker={"symbol": SYMBOLS[index], "size": 9},
                hovertext=[f"{language(own.worst_language).name}: {degradation(own.worst)}" for own in shown],
                hoverinfo="text",
            )
        )
    figure.update_xaxes(type="log", title={"text": "calibration tokens"})
    figure.update_yaxes(title={"text": "D of the worst-off language"}, ticksuffix=" %")
    return styled(figure, _ROWS)


def languages_figure(study: MixtureStudy) -> go.Figure:
    """D by language under every mix with all passages, worst with one language only on top."""
    shown = [own for own in study.settings if own.passages == study.most]
    only = study.of("only", study.most)
    codes = sorted(study.languages, key=lambda code: -only.loss[code].value)
    figure = go.Figure()
    for index, own in enumerate(shown):
        figure.add_trace(
            go.Scatter(
                x=[100 * np.expm1(own.loss[code].value) for code in codes],
                y=list(range(len(codes))),
                mode="markers",
                name=study.name(own.mix),
                marker={"color": COLOURS[index], "symbol": SYMBOLS[index], "size": 9},
                hovertext=[
                    f"{language(code).name}, {study.name(own.mix)}: {degradation(own.loss[code])}" for code in codes
                ],
                hoverinfo="text",
            )
        )
    figure.update_xaxes(title={"text": "degradation D"}, ticksuffix=" %")
    figure.update_yaxes(named_rows([language(code).name for code in codes]))
    return styled(figure, len(codes))


def _table(study: MixtureStudy) -> str:
    heads = ("mix", "passages", "tokens", "worst D", "95 %", "language", "mean D", *study.languages)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _cells(study, own))}</tr>" for own in study.settings
    )
    return f"<table><tr>{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr>{rows}</table>"


def _cells(study: MixtureStudy, own: Setting) -> list[str]:
    return [
        study.name(own.mix),
        str(own.passages),
        f"{own.tokens:,}",
        degradation(own.worst),
        degradation_interval(own.worst),
        language(own.worst_language).name,
        degradation(own.mean),
        *(degradation(own.loss[code]) for code in study.languages),
    ]
