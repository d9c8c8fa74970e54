"""The report says what the evaluation found, in both formats, whatever the evaluation and whatever the names."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.axes import Axes

from laaciq.evaluation import Estimate, Evaluation, Measurement, evaluate_measurements
from laaciq.evaluation.verdict import percent, percent_estimate
from laaciq.quantization.plan import Plan, PlanSet, Size
from laaciq.report.evaluation_plots import degradation_figure, ranks_figure
from laaciq.report.figures import VERMILION
from laaciq.report.findings import Findings
from laaciq.report.html import html_report
from laaciq.report.markdown import markdown_report
from laaciq.report.numbers import number
from laaciq.report.wording import baseline_sentence

COMMAND = "laaciq evaluate original quantized --texts builtin"
PLAN = Plan(
    method="rtn",
    tensors=[],
    size=Size(
        block_bytes=425_000,
        block_bits_per_weight=4.25,
        model_bytes=1_025_000,
        model_bits_per_weight=6.51,
        original_model_bytes=2_520_000,
        compression=2.46,
    ),
)
PLANS = PlanSet(plans={"": PLAN})
DISAGREEMENT = "The measures disagree"


def measurement(
    code: str, loss: float, *, tokens: int = 40, served: bool = True, documents: int = 20, noise: float = 0.02
) -> Measurement:
    """Two passages per document, `loss` more nats per token under the quantized model, with noise by passage."""
    random = np.random.default_rng(sum(code.encode()))
    passages = 2 * documents
    original = tokens * (3.0 + 0.1 * random.standard_normal(passages))
    change = tokens * (loss + noise * random.standard_normal(passages))
    return Measurement(
        language=code,
        served=served,
        documents=[f"d{i // 2}" for i in range(passages)],
        tokens=[tokens] * passages,
        bytes=[4 * tokens] * passages,
        original_nll=original.tolist(),
        quantized_nll=(original + change).tolist(),
        kl=[0.01 * tokens] * passages,
        agreed=[tokens - 2] * passages,
    )


CODES = ("eng", "fra", "rus", "hin", "swa", "tam", "yor", "kat")
EQUAL = [measurement(code, 0.05) for code in CODES]
UNEQUAL = [measurement(code, 0.02 * (i + 1)) for i, code in enumerate(CODES)]
CASES: dict[str, tuple[list[Measurement], bool]] = {
    "clear disparity": (UNEQUAL, True),
    "none": (EQUAL, True),
    "one collapsed": ([*UNEQUAL, measurement("mya", 3.0)], True),
    "all collapsed": ([measurement(code, 3.0) for code in CODES], True),
    "one not served": ([*UNEQUAL, measurement("amh", 0.5, served=False, documents=1)], True),
    "none served": ([measurement("amh", 0.5, served=False), measurement("mya", 4.0, served=False)], True),
    "one language": ([measurement("swa", 0.1)], True),
    "not parallel": (UNEQUAL, False),
    # Tamil loses least a token, and needs by far the most tokens for the same passage.
    "rankings disagree": ([*UNEQUAL[:5], measurement("tam", 0.015, tokens=600)], True),
    "no loss": ([measurement(code, 0.0, noise=0.0) for code in CODES], True),
}
every_case = pytest.mark.parametrize("case", CASES)


@cache
def evaluation(case: str) -> Evaluation:
    measurements, parallel = CASES[case]
    names = {"original": "org/model", "quantized": "out/model", "texts": "builtin"}
    return evaluate_measurements(measurements, **names, parallel=parallel, served_bound=4.0, draws=200)


@cache
def page(case: str) -> str:
    return html_report(Findings(evaluation(case), COMMAND, plans=PLANS))


@cache
def markdown(case: str) -> str:
    return markdown_report(Findings(evaluation(case), COMMAND, plans=PLANS))


class Reader(HTMLParser):
    """What a reader sees: text outside scripts and styles, and the rows of the table; and everything loaded or linked."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.text = ""
        self.tags: list[str] = []
        self.links: list[str] = []
        self._hidden = self._in_cell = False
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._hidden = tag in ("script", "style")
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "srcset", "data")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self._in_cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        self.text += data
        if self._in_cell:
            self.rows[-1][-1] += data


@cache
def read(case: str) -> Reader:
    return Reader(page(case))


def markdown_rows(case: str) -> list[list[str]]:
    lines = [line for line in markdown(case).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in [lines[0], *lines[2:]]]


@every_case
def test_every_language_has_its_row_worst_first(case: str) -> None:
    expected = [f"{r.name} ({r.language})" for r in evaluation(case).worst_first]
    assert [row[0] for row in read(case).rows[1:]] == expected
    assert [row[0] for row in markdown_rows(case)[1:]] == expected
    assert len(expected) == len(CASES[case][0])


@every_case
def test_notes_mark_what_is_not_served_and_what_collapsed(case: str) -> None:
    evaluated = evaluation(case)
    for row in [row for table in (read(case).rows, markdown_rows(case)) for row in table[1:]]:
        result = next(r for r in evaluated.languages if row[0] == f"{r.name} ({r.language})")
        assert (row[-1] == "not served") == (not result.served)
        assert (row[-1] == "collapsed") == (result.served and result.collapsed)
        assert (row[2] == "collapsed") == result.collapsed


@every_case
def test_both_formats_say_the_same(case: str) -> None:
    result = evaluation(case)
    assert result.verdict in read(case).text
    assert result.verdict in markdown(case)
    assert COMMAND in read(case).text
    assert COMMAND in markdown(case)
    assert read(case).rows[0] == markdown_rows(case)[0]


@every_case
def test_one_verdict_from_one_rule_and_the_other_statistics_folded_away(case: str) -> None:
    disparity = evaluation(case).disparity
    for source in (page(case), markdown(case)):
        shown = re.sub(r"<details.*?</details>", "", source, flags=re.DOTALL)
        for words in ("deviation τ", "cross-fitted"):
            assert words not in shown.lower()
            assert (words in source.lower()) == (disparity is not None)
        beyond = disparity is not None and disparity.plug_in.low > 0
        assert ("this disparity is beyond noise" in shown) == beyond
        assert ("no difference between languages is beyond noise" in shown) == (disparity is not None and not beyond)
        assert beyond == (disparity is not None and disparity.plug_in.value > disparity.noise_floor)


@every_case
def test_nothing_that_is_no_number_is_printed(case: str) -> None:
    for text in (read(case).text, markdown(case)):
        assert not re.search(r"\b(nan|none|inf|null)\b", text, re.IGNORECASE)
        assert "-0.0 %" not in text


@every_case
def test_the_page_needs_no_network_no_script_and_little_space(case: str) -> None:
    # A link within the page is a marker of a figure.
    assert all(link.startswith("#") for link in read(case).links)
    assert "script" not in read(case).tags
    assert len(page(case)) < 150_000


@every_case
def test_figures_share_no_ids(case: str) -> None:
    ids = re.findall(r' id="([^"]+)"', page(case))
    assert len(ids) == len(set(ids))


@every_case
def test_disagreement_is_said_exactly_where_rankings_disagree(case: str) -> None:
    disagree = not evaluation(case).summary.rankings_agree
    assert (DISAGREEMENT in read(case).text) == disagree
    assert (DISAGREEMENT in markdown(case)) == disagree


def test_the_cases_are_what_they_are_called() -> None:
    assert DISAGREEMENT in markdown("rankings disagree")
    assert "Tamil by bits per passage" in markdown("rankings disagree")
    assert DISAGREEMENT not in markdown("clear disparity")
    assert "this disparity is beyond noise" in markdown("clear disparity")
    assert "no difference between languages is beyond noise" in markdown("none")
    assert "needs at least two languages" in markdown("one language")
    assert "Bits per passage |" not in markdown("not parallel")


def test_a_single_document_gets_no_interval() -> None:
    row = read("one not served").rows[-1]
    assert re.fullmatch(r"\d+\.\d %", row[2])


def test_a_collapsed_language_has_no_ratio() -> None:
    row = next(row for row in markdown_rows("one collapsed") if row[0].startswith("Burmese"))
    assert row[2:4] == ["collapsed", "–"]


def test_a_plan_adds_its_size() -> None:
    for text in (read("none").text, markdown("none")):
        assert "4.25 in the blocks" in text
        assert "6.51 over the whole model" in text
    assert "Bits per weight" not in markdown_report(Findings(evaluation("none"), COMMAND))


def test_figures_show_who_was_judged() -> None:
    result = evaluation("one collapsed")
    (axes,) = degradation_figure(result).axes
    assert row_names(axes) == [r.name for r in result.worst_first]
    points = {tuple(point) for bars in axes.containers for point in bars.lines[0].get_xydata()}
    assert points == {(100 * r.degradation.value, row) for row, r in enumerate(result.worst_first) if not r.collapsed}
    assert [text.get_text() for text in axes.texts] == ["collapsed ▶"]
    assert "Amharic" not in row_names(degradation_figure(evaluation("one not served")).axes[0])


def row_names(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def test_the_baseline_is_drawn_and_told_beside() -> None:
    result, baseline = evaluation("none"), evaluation("clear disparity")
    (axes,) = degradation_figure(result, baseline).axes
    (hollow,) = [line for line in axes.lines if line.get_label() == "baseline"]
    rows = {r.language: row for row, r in enumerate(result.worst_first)}
    expected = {(100 * r.degradation.value, rows[r.language]) for r in baseline.judged}
    assert {tuple(point) for point in hollow.get_xydata()} == expected
    source = Reader(html_report(Findings(result, COMMAND, plans=PLANS, baseline=baseline)))
    assert baseline_sentence(result, baseline) in source.text
    assert "Baseline D" in source.rows[0]


def test_the_baseline_sentence_does_not_hide_who_collapsed() -> None:
    plain, fallen = evaluation("clear disparity"), evaluation("one collapsed")
    worst = plain.judged[0]
    loses = f"the worst-off language, {worst.name}, loses {percent(worst.degradation.value)}"
    assert baseline_sentence(plain, plain).count(loses) == 2
    assert f"The mean loss is {percent(plain.summary.mean)} and" in baseline_sentence(plain, plain)
    assert f"Burmese collapses; with this plan {loses}." in baseline_sentence(plain, fallen)
    assert "mean" not in baseline_sentence(plain, fallen)
    assert "no language is served" in baseline_sentence(evaluation("none served"), evaluation("none served"))


def test_the_band_is_as_wide_as_the_noise_floor() -> None:
    result = evaluation("clear disparity")
    assert result.disparity is not None
    (band,) = degradation_figure(result).axes[0].patches
    assert band.get_width() == pytest.approx(100 * result.disparity.noise_floor)
    assert band.get_x() + band.get_width() / 2 == pytest.approx(100 * result.summary.mean)


@pytest.mark.parametrize(("case", "measures"), [("clear disparity", 3), ("not parallel", 2)])
def test_a_measure_that_was_not_taken_is_left_out(case: str, measures: int) -> None:
    assert len(ranks_figure(evaluation(case)).axes[0].get_xticklabels()) == measures


def test_the_language_that_the_measures_disagree_on_stands_out() -> None:
    lines = ranks_figure(evaluation("rankings disagree")).axes[0].lines
    worse = [line for line in lines if line.get_color() == VERMILION]
    assert [line.get_label() for line in worse] == ["worse off than by D"]
    assert [list(line.get_ydata()) for line in worse] == [[5, 5, 0]]


def test_numbers() -> None:
    assert percent_estimate(Estimate(value=0.0321, low=0.0279, high=0.0372)) == "3.2 % [2.8, 3.7]"
    assert percent(-0.0001) == "0.0 %"
    assert percent(None) == number(float("inf")) == "–"
