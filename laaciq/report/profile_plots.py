"""Plots of a profile, as figures that go into the report and into PNG and SVG files."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from scipy.stats import norm

from laaciq.engine.files import write_bytes
from laaciq.evaluation import Evaluation
from laaciq.profiling.results import Profile

_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "#7F7F7F"


def fraction_heat_map(profile: Profile) -> Figure:
    """ā_l(λ) of every language and block, against the mean over languages: what all share is not the interesting part."""
    ordered = sorted(profile.languages, key=lambda r: -r.outlier_fraction)
    fractions = np.array([r.fractions for r in ordered])
    deviation = 100 * (fractions - fractions.mean(0))
    bound = max(float(np.abs(deviation).max()), 1e-9)
    figure = Figure(figsize=(2 + 0.45 * fractions.shape[1], 1.5 + 0.22 * len(ordered)), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(deviation, cmap="PuOr", vmin=-bound, vmax=bound, aspect="auto")
    axes.set_yticks(range(len(ordered)), [r.language for r in ordered], fontsize=8)
    axes.set_xticks(range(fractions.shape[1]), [_marked(profile, block) for block in range(fractions.shape[1])])
    axes.set_xlabel("block (outlier blocks marked *)")
    axes.set_title("Share of activation by block, percentage points from the mean")
    figure.colorbar(image, ax=axes)
    return figure


def kurtosis_by_block(profile: Profile) -> Figure:
    """κ_l pooled over the block, with the range of its tensors' own."""
    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.add_subplot()
    places = range(len(profile.blocks))
    colours = [_ORANGE if block.outlier else _BLUE for block in profile.blocks]
    axes.bar(places, [block.kurtosis for block in profile.blocks], color=colours)
    axes.plot(places, [block.max_tensor_kurtosis for block in profile.blocks], "_", color=_GREY, markersize=12)
    axes.axhline(0, color=_GREY, linewidth=0.8)
    axes.set_yscale("symlog", linthresh=1)
    axes.set_xticks(places)
    axes.set_xlabel("block")
    axes.set_ylabel("excess kurtosis κ")
    axes.set_title("Kurtosis by block (line: largest of its tensors)")
    return figure


def top_share_curves(profile: Profile) -> Figure:
    """Share of a tensor's magnitude held by its largest weights, one thin line a tensor."""
    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.add_subplot()
    for tensor in profile.tensors:
        shares = {float(key): value for key, value in tensor.top_shares.items()}
        axes.plot(list(shares), [100 * value for value in shares.values()], color=_BLUE, alpha=0.25, linewidth=0.8)
    percents = np.geomspace(0.01, 10, 50)
    # Of a Gaussian: E[|w|; |w| > z] / E|w| = exp(−z²/2) at the z that a share p of the weights exceeds.
    axes.plot(percents, 100 * np.exp(-(norm.isf(percents / 200) ** 2) / 2), "--", color=_ORANGE, label="Gaussian")
    axes.legend()
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("largest weights, %")
    axes.set_ylabel("share of magnitude, %")
    axes.set_title("How much the largest weights hold, by tensor")
    return figure


def kurtosis_against_degradation(profile: Profile, evaluation: Evaluation) -> Figure:
    """κ_eff(λ) against D(λ): the seeds' central correlation, on this model."""
    figure = Figure(figsize=(6, 4.5), layout="constrained")
    axes = figure.add_subplot()
    by_code = {r.language: r for r in profile.languages}
    for result in evaluation.judged:
        if result.language in by_code and result.degradation is not None:
            kurtosis, loss = by_code[result.language].effective_kurtosis, result.degradation
            bars = [[100 * (loss.value - loss.low)], [100 * (loss.high - loss.value)]]
            axes.errorbar(kurtosis, 100 * loss.value, yerr=bars, fmt="o", color=_BLUE, alpha=0.6, markersize=4)
            axes.annotate(
                result.language, (kurtosis, 100 * loss.value), fontsize=7, xytext=(3, 3), textcoords="offset points"
            )
    axes.set_xlabel("effective kurtosis κ_eff")
    axes.set_ylabel("degradation D, %")
    axes.set_title("Effective kurtosis against degradation")
    return figure


PLOTS: dict[str, Callable[[Profile], Figure]] = {
    "fractions": fraction_heat_map,
    "kurtosis": kurtosis_by_block,
    "top-shares": top_share_curves,
}


def figures_of(profile: Profile, evaluation: Evaluation | None = None) -> dict[str, Figure]:
    """Every plot that the data allow, by name."""
    figures = {name: plot(profile) for name, plot in PLOTS.items()}
    if evaluation is not None:
        figures["kurtosis-degradation"] = kurtosis_against_degradation(profile, evaluation)
    return figures


def write_figures(figures: dict[str, Figure], folder: Path) -> None:
    """Each as PNG and as SVG."""
    for name, figure in figures.items():
        for kind in ("png", "svg"):
            write_bytes(folder / f"{name}.{kind}", render(figure, kind))


def render(figure: Figure, kind: str) -> bytes:
    """Without date, version or random ids, so that equal data give equal files."""
    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "laaciq"}):
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
    return buffer.getvalue()


def inline_svg(figure: Figure) -> str:
    """For a page: without the XML declaration, which HTML does not take."""
    text = render(figure, "svg").decode()
    return text[text.index("<svg") :]


def _marked(profile: Profile, block: int) -> str:
    return f"{block}*" if profile.blocks[block].outlier else str(block)
