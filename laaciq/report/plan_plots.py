"""The figures of a planning: does the sensitivity model predict what is measured, and what would other sizes cost?"""

from __future__ import annotations

from matplotlib.figure import Figure

from laaciq.planning.results import Planning
from laaciq.report.figures import BLUE, GREY, VERMILION, label_plainly, legend_below, new_figure, styled


@styled
def agreement_figure(planning: Planning) -> Figure:
    """Predicted against measured losses: of the plans that the predictions were rescaled by, and of later ones."""
    rescaled_by = [
        (scale * predicted, nll_per_kl * divergence)
        for probe in planning.probes
        for scale, predicted, nll_per_kl, divergence in zip(
            planning.scale, probe.predicted, planning.nll_per_kl, probe.measured.divergence, strict=True
        )
    ]
    # The first round is one of the probes.
    later = [pair for r in planning.rounds[1:] for pair in zip(r.predicted, r.losses, strict=True)]
    figure, axes = new_figure(4.5)
    for pairs, label, colour, face in (
        (rescaled_by, "used to rescale predictions", GREY, "none"),
        (later, "predicted, then measured", VERMILION, VERMILION),
    ):
        # A logarithmic axis has no place for a loss that is not positive.
        shown = [pair for pair in pairs if min(pair) > 0]
        axes.plot(
            [x for x, _ in shown],
            [y for _, y in shown],
            "o",
            color=colour,
            markerfacecolor=face,
            markersize=4,
            label=label,
        )
    values = [value for pair in (*rescaled_by, *later) if min(pair) > 0 for value in pair]
    ends = (0.8 * min(values, default=0.01), 1.25 * max(values, default=1.0))
    axes.plot(ends, ends, ":", color=BLUE, label="equal")
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    label_plainly(axes.xaxis)
    label_plainly(axes.yaxis)
    axes.set_xlabel("predicted loss, nats per token")
    axes.set_ylabel("measured loss, nats per token")
    legend_below(figure)
    return figure


@styled
def front_figure(planning: Planning) -> Figure:
    """Size against the predicted loss of the worst-off language, and against the predicted disparity."""
    figure, axes = new_figure(3.5)
    sizes = [point.bits_per_weight for point in planning.front]
    axes.plot(sizes, [point.worst for point in planning.front], "o-", color=VERMILION, label="worst-off language, ΔNLL")
    axes.plot(sizes, [point.disparity for point in planning.front], "s-", color=BLUE, label="disparity of D")
    axes.set_yscale("log")
    label_plainly(axes.yaxis)
    axes.set_xlabel("bits per weight")
    legend_below(figure)
    return figure
