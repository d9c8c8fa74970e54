"""A part of `python -m benchmarks.coverage`: 95 % intervals of simulated losses cover what was simulated.

Simulations are numbered, so that the shares are the same in every run. Bounds leave three Monte Carlo standard errors below 95 %, or below
what docs/statistics.md gives for the cell.
"""

import math

import pytest

from benchmarks.coverage import FALSE_ALARM, Results, count, fingerprint, full_table, read_results, remarks, table
from benchmarks.simulated_losses import CELLS, draw_pair


def cell_named(name):
    return next(cell for cell in CELLS if cell.name == name)


def error(observations, share=0.95):
    return math.sqrt(share * (1 - share) / observations)


@pytest.mark.parametrize(
    "name, simulations, expected",
    [
        # With a normal quantile in place of Student's: 0.914.
        ("12-8-equal-gaussian-plain", 150, 0.95),
        # Without the correction for skewness: 0.913.
        ("12-8-equal-skewed-plain", 150, 0.942),
        # With passages in place of documents: 0.799.
        ("12-20-equal-gaussian-clustered", 60, 0.95),
    ],
)
def test_losses_of_single_languages(name, simulations, expected):
    cell = cell_named(name)
    covered = total = 0
    for number in range(simulations):
        pair = draw_pair(cell, number)
        for estimate, truth in zip(pair.right.by_language().values(), pair.true_right, strict=True):
            covered += estimate.low <= truth <= estimate.high
            total += 1
    assert abs(covered / total - expected) < 3 * error(total, expected)


@pytest.mark.parametrize(
    "name, simulations",
    [
        # A percentile bootstrap covers the disparity or the worst language in 0.00 to 0.88 of the simulations.
        ("12-20-equal-gaussian-unequal", 150),
        ("36-20-equal-gaussian-parallel", 100),
        ("12-8-planted-skewed-clustered", 150),
        ("36-8-planted-t3-parallel", 100),
        ("12-8-graded-gaussian-clustered", 150),
        ("4-60-equal-t3-plain", 60),
    ],
)
def test_the_worst_language_and_disparity(name, simulations):
    counts = count(cell_named(name), range(simulations))
    least = 0.95 - 3 * error(simulations)
    assert counts.simulations == simulations
    for quantity in ("mean", "worst", "disparity"):
        assert counts.share(quantity) >= least
    if FALSE_ALARM in counts.covered:
        assert counts.share(FALSE_ALARM) <= 0.05 + 3 * error(simulations)


@pytest.mark.parametrize("name", ["4-8-planted-gaussian-plain", "12-20-graded-skewed-all", "12-8-equal-t3-plain"])
def test_ratios_and_differences_of_two_quantizations(name):
    simulations = 60
    counts = count(cell_named(name), range(simulations))
    for quantity in ("mean ratio", "worst ratio", "worst difference", "disparity ratio"):
        if quantity in counts.covered:
            assert counts.share(quantity) >= 0.95 - 3 * error(simulations)


def test_a_planted_language_is_told_from_noise_and_its_loss_is_known():
    """Intervals that cover must not be long: five standard errors are beyond noise, and half of the interval is below four."""
    cell = cell_named("12-20-planted-gaussian-parallel")
    found, lengths = 0, []
    for number in range(60):
        pair = draw_pair(cell, number)
        found += pair.right.disparity().estimate.low > 0
        worst = pair.right.worst()[1]
        lengths.append((worst.high - worst.low) / (pair.true_right.max() - pair.true_right.min()))
    assert found >= 57
    assert sorted(lengths)[30] < 2 * 4 / 5


def test_the_grid_is_the_one_that_the_documentation_names():
    assert len(CELLS) == len({cell.name for cell in CELLS}) == 4 * 3 * 3 * 3 * 5


def test_counts_are_kept_for_the_same_code_alone(tmp_path):
    cell = cell_named("4-8-equal-gaussian-parallel")
    first, second = count(cell, range(2)), count(cell, range(2, 5))
    both = first.plus(second)
    assert both == count(cell, range(5))
    kept = tmp_path / "coverage.json"
    kept.write_text(Results(code=fingerprint(), cells={cell.name: both}).model_dump_json())
    assert read_results(kept).cells[cell.name] == both
    shown = {cell: both}
    assert f"| {both.share('D'):.3f} |" in table(shown)[-1]
    assert cell.name in full_table(shown)[-1]
    assert "1 cells, 5 simulations" in next(remarks(shown))
    kept.write_text(Results(code="of another version").model_dump_json())
    with pytest.raises(ValueError, match="other methods"):
        read_results(kept)
    kept.write_text("[]")
    with pytest.raises(ValueError, match="no results"):
        read_results(kept)
