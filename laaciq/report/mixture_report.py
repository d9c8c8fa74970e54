"""The report of a study of calibration text: one HTML page."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from laaciq.corpus import language
from laaciq.report.figures import (
    COLOURS,
    MARKERS,
    label_plainly,
    legend_below,
    name_rows,
    new_figure,
    rows_height,
    styled,
)
from laaciq.report.page import bullets, drawing, heading, page, paragraph, table, verdict
from laaciq.studies.mixture_results import MixtureStudy, Setting
from laaciq.studies.recommendation import degradation, degradation_interval, left_out_sentence


def mixture_html(study: MixtureStudy) -> str:
    title = f"Calibration text for {study.model}"
    grid = f"{study.bits} bits, group {study.group_size}, {'symmetric' if study.symmetric else 'affine'}"
    return page(
        title,
        [
            heading(title, 1),
            verdict(study.recommendation.sentence),
            paragraph(
                f"GPTQ, {grid}; texts: {study.texts}. Chosen on up to {study.validation_passages} validation passages per language, "
                f"measured on up to {study.test_passages} test passages. The 95 % intervals cover the choice of test passages, not that "
                "of calibration text."
            ),
            heading("The worst-off language, by tokens and mix"),
            drawing(tokens_figure(study), "D of the worst-off language against calibration tokens, one line per mix."),
            heading("Every language, with all passages"),
            drawing(languages_figure(study), "D by language, one mark per mix."),
            heading("One language left out"),
            bullets(left_out_sentence(left_out) for left_out in study.left_out),
            heading("All settings"),
            _table(study),
        ],
    )


@styled
def tokens_figure(study: MixtureStudy) -> Figure:
    """D of the worst language against calibration tokens; settings in which a language collapsed are left out."""
    figure, axes = new_figure(4.5)
    for index, mix in enumerate(dict.fromkeys(setting.mix for setting in study.settings)):
        shown = [setting for setting in study.settings if setting.mix == mix and setting.disparity is not None]
        worst = [[100 * np.expm1(v) for v in (s.worst.value, s.worst.low, s.worst.high)] for s in shown]
        axes.errorbar(
            [setting.tokens for setting in shown],
            [value for value, _, _ in worst],
            yerr=[[max(0.0, v - low) for v, low, _ in worst], [max(0.0, high - v) for v, _, high in worst]],
            fmt=f"{MARKERS[index]}-", color=COLOURS[index], capsize=2, elinewidth=1.5, label=study.name(mix),
        )  # fmt: skip
    axes.set(xscale="log", xlabel="calibration tokens", ylabel="D of the worst-off language, %")
    label_plainly(axes.xaxis)
    legend_below(figure)
    return figure


@styled
def languages_figure(study: MixtureStudy) -> Figure:
    """D by language under every mix with all passages, sorted by the loss when calibrated on one language only."""
    only = study.of("only", study.most)
    codes = sorted(study.languages, key=lambda code: -only.loss[code].value)
    figure, axes = new_figure(rows_height(len(codes)))
    for index, setting in enumerate(s for s in study.settings if s.passages == study.most):
        losses = [100 * np.expm1(setting.loss[code].value) for code in codes]
        axes.plot(losses, range(len(codes)), MARKERS[index], color=COLOURS[index], label=study.name(setting.mix))
    name_rows(axes, [language(code).name for code in codes])
    axes.set_xlabel("degradation D, %")
    legend_below(figure)
    return figure


def _table(study: MixtureStudy) -> str:
    headings = ("mix", "passages", "tokens", "worst D", "95 %", "language", "mean D", *study.languages)
    return table(headings, [_cells(study, setting) for setting in study.settings], label="All settings")


def _cells(study: MixtureStudy, setting: Setting) -> list[str]:
    return [
        study.name(setting.mix),
        str(setting.passages),
        f"{setting.tokens:,}",
        degradation(setting.worst),
        degradation_interval(setting.worst),
        language(setting.worst_language).name,
        degradation(setting.mean),
        *(degradation(setting.loss[code]) for code in study.languages),
    ]
