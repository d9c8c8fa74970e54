"""Against R on published examples, and against simulation."""

import numpy as np
import pytest

from laaciq.stats.paired_shares import corrected, difference_of_shares, paired_means, paired_shares, share
from tests.stats.sleep import FIRST, SECOND


def test_the_interval_is_that_of_the_paper():
    """Fagerland, Lydersen & Laake (2014, Stat Med 33:2850), airway hyper-responsiveness: 1 and 7 discordant of 21 pairs; Bonett and Price's
    interval is −0.508 to −0.013. R: d <- -6 / 23; d + c(-1, 1) * qnorm(0.975) * sqrt((10 / 23 - d^2) / 23)."""
    interval = difference_of_shares(1, 7, 21)
    assert interval.value == pytest.approx(-6 / 21)
    assert (interval.low, interval.high) == pytest.approx((-0.5083593067, -0.0133798238), abs=1e-10)


def test_wilson_s_interval_is_that_of_the_paper():
    """Newcombe (1998, Stat Med 17:857), method 3: 81 of 263 is 0.2553 to 0.3662, 0 of 20 is 0 to 0.1611.
    R: prop.test(81, 263, correct = FALSE), prop.test(0, 20, correct = FALSE)."""
    assert (share(81, 263).low, share(81, 263).high) == pytest.approx((0.2552885199, 0.3662095770), abs=1e-10)
    assert (share(0, 20).low, share(0, 20).high) == pytest.approx((0.0, 0.1611251581), abs=1e-10)


@pytest.mark.parametrize("gained, lost, items", [(0, 0, 1), (0, 0, 50), (9, 0, 9), (0, 9, 9), (3, 2, 12)])
def test_an_interval_contains_its_estimate_and_is_no_point(gained, lost, items):
    interval = difference_of_shares(gained, lost, items)
    assert -1 <= interval.low <= interval.value <= interval.high <= 1
    assert interval.low < interval.high


def test_the_interval_of_a_difference_covers():
    """95 % within what 2,000 draws of 20 items show: a standard error is 0.5 %."""
    random = np.random.default_rng(0)
    draws = random.multinomial(20, [0.25, 0.1, 0.65], size=2000)
    intervals = [difference_of_shares(gained, lost, 20) for lost, gained, _ in draws.tolist()]
    covered = np.mean([interval.low <= 0.1 - 0.25 <= interval.high for interval in intervals])
    assert 0.93 < covered < 0.985


def test_items_are_counted_in_pairs():
    compared = paired_shares([True, True, True, False, False], [False, False, True, True, False])
    assert (compared.items, compared.lost, compared.gained) == (5, 2, 1)
    assert (compared.original, compared.quantized) == (0.6, 0.4)
    assert compared.difference.value == pytest.approx(-0.2)


def test_the_number_of_languages_is_corrected_for():
    """One of many without an effect is no finding."""
    hurt = paired_shares([True] * 6, [False] * 6)
    same = paired_shares([True] * 6, [True] * 6)
    assert hurt.changed and corrected([hurt])[0].changed
    assert not any(one.changed for one in corrected([hurt, *[same] * 9]))
    assert corrected([]) == []


def test_means_of_pairs_are_student_s():
    """Student (1908), extra hours of sleep of ten patients with two drugs: mean 1.58, interval 0.70 to 2.46.
    R: t.test(second, first, paired = TRUE)."""
    difference = paired_means(FIRST, SECOND).difference
    ends = (difference.value, difference.low, difference.high)
    assert ends == pytest.approx((1.58, 0.7001142367, 2.4598857633), abs=1e-10)
    assert paired_means([0.5], [0.7]).difference is None
