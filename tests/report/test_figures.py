"""Figures are the same whatever settings of matplotlib lie in the current folder: it reads them when it is imported."""

from matplotlib import rc_context

from laaciq.report.evaluation_plots import degradation_figure
from laaciq.report.figures import inline_svg
from tests.report.test_report import evaluation


def test_settings_of_a_stranger_change_nothing():
    usual = inline_svg(degradation_figure(evaluation("none")), "name")
    with rc_context(
        {"text.usetex": True, "text.latex.preamble": r"\input{/etc/passwd}", "font.size": 40, "axes.facecolor": "red"}
    ):
        assert inline_svg(degradation_figure(evaluation("none")), "name") == usual
