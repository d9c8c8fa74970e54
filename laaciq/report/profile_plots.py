"""The figures of a profile: kurtosis by block, how languages use the blocks, and how much the largest weights hold."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import SymmetricalLogLocator
from scipy.stats import norm

from laaciq.profiling.results import Profile
from laaciq.profiling.routing import block_of, language_routings
from laaciq.report.figures import BLUE, GREY, VERMILION, label_plainly, new_figure, styled

CAPTIONS = {
    "fractions": "Share of activation ā_l(λ) by language and block, in percentage points from the mean over languages. "
    "Blocks marked * are outlier blocks.",
    "kurtosis": "Excess kurtosis κ of each block, pooled over its weights. Outlier blocks are orange; a dash is the largest κ of "
    "one of its tensors.",
    "routing": "Share of a language's tokens that the router sends to each expert, in percentage points from the mean over languages. Lines "
    "separate blocks, and the most different language is at the top.",
    "top-shares": "Share of a tensor's magnitude that its largest weights hold, one line per tensor.",
}


def profile_figures(profile: Profile) -> dict[str, Figure]:
    """By name, as in `CAPTIONS`. The routing is plotted if the model has experts."""
    figures = {"fractions": fraction_heat_map(profile)}
    if profile.languages[0].routing:
        figures["routing"] = routing_heat_map(profile)
    return figures | {"kurtosis": kurtosis_by_block(profile), "top-shares": top_share_curves(profile)}


@styled
def fraction_heat_map(profile: Profile) -> Figure:
    """ā_l(λ) minus its mean over languages: what all share is not the interesting part."""
    ordered = sorted(profile.languages, key=lambda r: -r.outlier_fraction)
    fractions = np.array([r.fractions for r in ordered])
    deviation = 100 * (fractions - fractions.mean(0))
    bound = max(float(np.abs(deviation).max()), 1e-9)
    blocks = range(fractions.shape[1])
    figure, axes = new_figure(1.5 + 0.22 * len(ordered), width=2 + 0.45 * len(blocks))
    axes.grid(visible=False)
    image = axes.imshow(deviation, cmap="PuOr", vmin=-bound, vmax=bound, aspect="auto")
    axes.set_yticks(range(len(ordered)), [r.language for r in ordered], fontsize=8)
    axes.set_xticks(blocks, [f"{block}{'*' * profile.blocks[block].outlier}" for block in blocks])
    axes.set_xlabel("block")
    figure.colorbar(image, ax=axes)
    return figure


@styled
def routing_heat_map(profile: Profile) -> Figure:
    """s_e(λ) minus its mean over languages, for all experts of all blocks."""
    ordered = [routing.language for routing in language_routings(profile)]
    mixtures = [np.array([profile[code].routing[path] for code in ordered]) for path in profile.languages[0].routing]
    shares = np.concatenate(mixtures, axis=1)
    deviation = 100 * (shares - shares.mean(0))
    bound = max(float(np.abs(deviation).max()), 1e-9)
    figure, axes = new_figure(1.5 + 0.22 * len(ordered), width=min(14.0, 2 + 0.12 * shares.shape[1]))
    axes.grid(visible=False)
    image = axes.imshow(deviation, cmap="PuOr", vmin=-bound, vmax=bound, aspect="auto", interpolation="none")
    axes.set_yticks(range(len(ordered)), ordered, fontsize=8)
    starts = np.cumsum([0, *(mixture.shape[1] for mixture in mixtures)])
    for start in starts[1:-1]:
        axes.axvline(start - 0.5, color=GREY, linewidth=0.8)
    axes.set_xticks((starts[:-1] + starts[1:] - 1) / 2, [block_of(path) for path in profile.languages[0].routing])
    axes.set_xlabel("block")
    figure.colorbar(image, ax=axes)
    return figure


@styled
def kurtosis_by_block(profile: Profile) -> Figure:
    """κ_l pooled over the block, and the largest of its tensors."""
    figure, axes = new_figure(3.5)
    places = range(len(profile.blocks))
    colours = [VERMILION if block.outlier else BLUE for block in profile.blocks]
    axes.bar(places, [block.kurtosis for block in profile.blocks], color=colours)
    axes.plot(places, [block.max_tensor_kurtosis for block in profile.blocks], "_", color=GREY, markersize=12)
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set_yscale("symlog", linthresh=1)
    label_plainly(axes.yaxis, SymmetricalLogLocator(base=10, linthresh=1, subs=(1, 2, 5)))
    axes.set_xticks(places)
    axes.set_xlabel("block")
    axes.set_ylabel("excess kurtosis κ")
    return figure


@styled
def top_share_curves(profile: Profile) -> Figure:
    figure, axes = new_figure(3.5)
    for tensor in profile.tensors:
        shares = {float(key): value for key, value in tensor.top_shares.items()}
        axes.plot(list(shares), [100 * value for value in shares.values()], color=BLUE, alpha=0.25, linewidth=0.8)
    percents = np.geomspace(0.01, 10, 50)
    # Of a Gaussian: E[|w|; |w| > z] / E|w| = exp(−z²/2) at the z that a share p of the weights exceeds.
    axes.plot(percents, 100 * np.exp(-(norm.isf(percents / 200) ** 2) / 2), "--", color=VERMILION, label="Gaussian")
    axes.legend()
    axes.set(xscale="log", yscale="log", xlabel="largest weights, %", ylabel="share of magnitude, %")
    label_plainly(axes.xaxis)
    label_plainly(axes.yaxis)
    return figure
