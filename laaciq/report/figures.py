"""How figures look, and how they become files or parts of a page. Nothing is shown by colour alone."""

from __future__ import annotations

import io
import re

from matplotlib import rc_context, style
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import Locator, LogLocator, NullFormatter, StrMethodFormatter

from laaciq.engine.escaping import printable

# Okabe & Ito (2008) without black and yellow, which vanish on one of two backgrounds, and with a grey.
BLUE, VERMILION, GREY = "#0072b2", "#d55e00", "#808080"
COLOURS = (BLUE, VERMILION, "#009e73", "#cc79a7", "#e69f00", "#56b4e9", GREY)
# Five markers and seven colours: 35 pairs before one repeats.
MARKERS = ("o", "s", "D", "^", "X")
# Of text and axes. In a page it becomes the colour of the text around the figure, so that dark pages stay legible.
INK = "#1b1f24"
WIDTH = 8.0
_ROW_HEIGHT = 0.24

# Decorates every function that draws: matplotlib reads most settings when an element is made. Its defaults come first, since it has read a
# file of settings in the current folder, which could have text set by LaTeX.
styled = style.context(
    [
        "default",
        {
            "axes.edgecolor": GREY,
            "axes.grid": True,
            "axes.labelcolor": INK,
            "axes.spines.right": False,
            "axes.spines.top": False,
            "font.size": 10,
            "grid.alpha": 0.25,
            "grid.color": GREY,
            "legend.frameon": False,
            # A dollar sign in a name is no formula.
            "text.parse_math": False,
            "text.color": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            # Text stays text: it can be searched and copied, and takes little space.
            "svg.fonttype": "none",
            # Equal data give equal files.
            "svg.hashsalt": "laaciq",
        },
    ]
)


def new_figure(height: float, width: float = WIDTH) -> tuple[Figure, Axes]:
    """In inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def name_rows(axes: Axes, names: list[str]) -> None:
    """One named row for each, the first on top."""
    axes.set_yticks(range(len(names)), list(map(printable, names)))
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.5, -0.5)


def label_plainly(axis: Axis, locator: Locator | None = None) -> None:
    """Labels such as 0.02 on a logarithmic axis: the powers of ten that matplotlib writes need its formula parser."""
    axis.set_major_locator(locator or LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def rows_height(rows: int) -> float:
    """The height of a figure with so many named rows, an axis and a legend."""
    return 1.4 + _ROW_HEIGHT * max(rows, 2)


def legend_below(figure: Figure, columns: int = 4) -> None:
    """Of all that has a label."""
    if any(axes.get_legend_handles_labels()[0] for axes in figure.axes):
        figure.legend(loc="outside lower center", ncols=columns)


@styled
def render(figure: Figure, kind: str) -> bytes:
    """The figure as `png` or `svg` on white, without date and version."""
    return _saved(figure, kind, transparent=False)


@styled
def inline_svg(figure: Figure, name: str) -> str:
    """For a page: transparent, text and axes in the colour of the page's text. Ids depend on `name`, so that figures do not share them."""
    with rc_context({"svg.hashsalt": name}):
        text = _saved(figure, "svg", transparent=True).decode()
    text = re.sub(r'<g id="[^"]*"', "<g", text[text.index("<svg") :])
    return text.replace(INK, "currentColor")


def _saved(figure: Figure, kind: str, *, transparent: bool) -> bytes:
    buffer = io.BytesIO()
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    figure.savefig(buffer, format=kind, dpi=150, transparent=transparent, metadata=metadata)
    return buffer.getvalue()
