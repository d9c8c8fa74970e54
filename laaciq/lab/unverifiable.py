"""Figures of the theory that no data can reach, because the data or the definition were never published."""

from __future__ import annotations

from laaciq.strict import StrictModel


class UnverifiableFigure(StrictModel):
    figure: str
    place: str
    needed: str


_DEVELOPMENT = "Theory Development"
UNVERIFIABLE = (
    UnverifiableFigure(
        figure="within-language r = −0.998 (T → D direct)",
        place=f"{_DEVELOPMENT}, Theory 4",
        needed="the segmentations, texts and losses of that experiment; do(T) by segmentation sampling is the nearest test",
    ),
    UnverifiableFigure(
        figure="r = −0.924 with n = 12, r² = 0.85",
        place=f"{_DEVELOPMENT}, Power Analysis",
        needed="which two quantities it relates, and the values of the twelve languages",
    ),
    UnverifiableFigure(
        figure="4.24× disparity, Cohen's d = 2.1",
        place=f"{_DEVELOPMENT}, The Gap and Effect Size Reporting",
        needed="the model, the bit width, and which languages count as low-resource",
    ),
    UnverifiableFigure(
        figure="41 % reduction by L0, L9, L11, Cohen's d = 0.9",
        place=f"{_DEVELOPMENT}, Theory 3",
        needed="the model and the losses by language; the lab tests the same blocks on any model (gateway-reduction)",
    ),
    UnverifiableFigure(
        figure="tokenization mediates 42 % of the effect (B-011)",
        place=f"{_DEVELOPMENT}, Theory 4",
        needed="the variables and languages of that mediation; the lab computes the share on any model (tokenization-mediated)",
    ),
    UnverifiableFigure(
        figure="D(eng) = 0.005, D(ara) = 0.025 and the other losses beside BLOOM's activations",
        place="Theoretical Framework, 2.1 and 2.4",
        needed="losses of BLOOM itself: the published ones are read off figures for another model family",
    ),
    UnverifiableFigure(
        figure="217 experiments",
        place=f"{_DEVELOPMENT}, The Gap",
        needed="their list, so that a correction for their number is possible",
    ),
    UnverifiableFigure(
        figure="r = +0.838 between kurtosis ratio and disparity",
        place=f"{_DEVELOPMENT}, Theory 2",
        needed="the pairs of languages; elsewhere the same figure is r(κ_eff, D) = −0.838",
    ),
)
