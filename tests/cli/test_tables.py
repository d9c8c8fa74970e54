"""D is legible in every terminal: tables lose what matters least."""

import pytest

from laaciq.cli.tables import evaluation_table
from tests.cli.rendering import rendered
from tests.cli.results import evaluation

LOSSES = {"eng": 0.018, "swa": 0.048, "tam": 5.57, "por": 0.005, "ind": 20.0}
BASELINE = {"eng": 0.028, "swa": 0.087, "tam": 6.0, "por": 20.0, "ind": 0.052}


def row(lines, code):
    return next(line.split() for line in lines if line.startswith(code))


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("against", [None, BASELINE])
def test_d_stays_whatever_the_width(width, against):
    result = evaluation(LOSSES, not_served=("amh",))
    lines = rendered(evaluation_table(result, against and evaluation(against, not_served=("amh",))), width)
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    for code, shown in (("eng", "1.8"), ("swa", "4.8"), ("tam", "557.0"), ("por", "0.5")):
        assert shown in row(lines, code)
    assert "collapsed" in row(lines, "ind")
    assert "not served" in " ".join(row(lines, "amh"))


def test_what_is_left_out_where_it_is_narrow():
    result, baseline = evaluation(LOSSES), evaluation(BASELINE)
    headings = {}
    for width in (60, 80):
        lines = rendered(evaluation_table(result, baseline), width)
        headings[width] = next(line.split() for line in lines if line.startswith("language"))
    assert headings[80] == ["language", "bits/byte", "D", "95", "%", "KL", "baseline", "D"]
    assert headings[60] == ["language", "D", "95", "%", "baseline", "D"]
