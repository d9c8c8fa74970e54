"""What the tables of the benchmarks promise: verdicts by the interval, ratios at equal size, nothing left out in silence."""

from argparse import Namespace

import numpy as np
import pytest

from benchmarks import methods
from benchmarks.frontier_tables import Pair, aim_verdict, headline, make_pairs, print_against, print_tables
from benchmarks.peers import PEERS, our_row, our_sizes
from benchmarks.rows import MeasuredMethod, MeasuredRow, MeasuredTexts, read_draws
from laaciq.stats.estimate import Estimate
from laaciq.trials.measurement import Measurement

CODES = ["eng", "swa", "hin"]
PASSAGES = 12
TOKENS = 25


def row(name, loss, *, size=4.25, seed=0):
    """`loss` in nats per token, of all languages alike but for noise of a tenth."""
    random = np.random.default_rng(seed)
    measured = {}
    for code in CODES:
        nll = random.normal(50.0, 5.0, PASSAGES)
        lost = TOKENS * loss * random.normal(1.0, 0.1, PASSAGES)
        measured[code] = Measurement(
            language=code,
            served=True,
            documents=[str(number) for number in range(PASSAGES)],
            tokens=[TOKENS] * PASSAGES,
            bytes=[100] * PASSAGES,
            original_nll=nll.tolist(),
            quantized_nll=(nll + lost).tolist(),
            kl=None,
            agreed=None,
        )
    return MeasuredRow(
        name=name,
        block_bits_per_weight=size,
        model_bits_per_weight=size,
        seconds=1.0,
        weight_error=0.1,
        tests={"test": MeasuredTexts(parallel=True, by_language=measured)},
    )


def method(name, loss, *, size=4.25, seed=0, draws=1):
    return MeasuredMethod.of([row(name, loss, size=size, seed=seed + draw) for draw in range(draws)], "test")


@pytest.mark.parametrize(
    ("low", "value", "high", "expected"),
    [
        (0.1, 0.2, 0.4, "the aim of 0.4 is reached"),
        (0.41, 0.5, 0.6, "the aim of 0.4 is missed"),
        (0.3, 0.35, 0.41, "the estimate reaches the aim of 0.4, the interval does not decide it"),
        (0.4, 0.5, 0.6, "the estimate misses the aim of 0.4, the interval does not decide it"),
    ],
)
def test_an_aim_is_reached_or_missed_by_the_whole_interval(low, value, high, expected):
    assert aim_verdict(Estimate(value=value, low=low, high=high), 0.4) == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.8, 0.99, "helps"), (1.01, 1.2, "does not help"), (0.9, 1.05, "makes no difference beyond noise")],
)
def test_a_method_helps_if_the_whole_interval_says_so(low, high, expected):
    assert methods.verdict(Estimate(value=(low + high) / 2, low=low, high=high)) == expected


@pytest.mark.parametrize("statistic", ["worst", "disparity", "mean"])
def test_estimates_and_ratios_lie_in_their_intervals(statistic):
    ours, theirs = method("ours", 0.02, seed=10, draws=3), method("theirs", 0.1)
    for estimate in (ours.estimate(statistic), ours.ratio(theirs, statistic)):
        assert estimate.low <= estimate.value <= estimate.high


def test_other_draws_of_calibration_text_widen_the_interval():
    steady = [row("ours", 0.02)] * 3
    draws = [row("ours", loss) for loss in (0.01, 0.02, 0.03)]
    mean, wider = (MeasuredMethod.of(rows, "test").estimate("mean") for rows in (steady, draws))
    assert wider.value == pytest.approx(mean.value)
    assert wider.high - wider.low > 2 * (mean.high - mean.low)


def test_a_collapsed_peer_has_no_disparity_and_no_ratio_of_it():
    collapsed, ours = method("NF4", 3.0), method("ours", 0.02)
    pair = Pair(PEERS[0], collapsed, ours)
    assert collapsed.collapsed == len(CODES)
    assert collapsed.estimate("disparity") is None
    assert pair.ratios["disparity"] is None
    assert pair.ratios["worst"].high < 0.1
    assert "every such peer lets a language collapse" in headline([pair], "disparity", 0.3)


def test_the_best_peer_in_disparity_is_one_without_collapse():
    collapsed, standing, ours = method("NF4", 3.0), method("HQQ 4 bits", 0.1, seed=1), method("ours", 0.02, seed=2)
    pairs = [Pair(PEERS[0], collapsed, ours), Pair(PEERS[1], standing, ours)]
    assert "of HQQ 4 bits" in headline(pairs, "disparity", 0.3)


def test_at_equal_size_compares_with_the_mixture_of_the_two_grids_around():
    curve = [method("small", 0.2, size=4.0, seed=1), method("large", 0.1, size=5.0, seed=2)]
    mixture = 0.75 * curve[0].losses.per_token + 0.25 * curve[1].losses.per_token
    between = method("between", 0.15, size=4.25, seed=3)
    ratio = methods.at_equal_size(between, curve)
    assert ratio.value == pytest.approx(between.losses.per_token.max() / mixture.max())
    assert ratio.low < ratio.value < ratio.high


def test_a_grid_of_the_curve_makes_no_difference_to_itself():
    curve = [method("small", 0.2, size=4.0, seed=1), method("large", 0.1, size=5.0, seed=2)]
    ratio = methods.at_equal_size(curve[1], curve)
    assert (ratio.low, ratio.value, ratio.high) == pytest.approx((1.0, 1.0, 1.0), rel=2e-3)


@pytest.mark.parametrize("size", [3.9, 5.1])
def test_beyond_the_curve_there_is_no_comparison_at_equal_size(size):
    curve = [method("small", 0.2, size=4.0), method("large", 0.1, size=5.0)]
    assert methods.at_equal_size(method("beyond", 0.1, size=size), curve) is None


def test_our_plans_are_never_larger_than_the_peer():
    sizes = our_sizes([4.127, 4.125, 4.5, 3.12502])
    assert sizes == [3.125, 4.1250, 4.5]
    assert all(ours <= theirs for ours, theirs in zip(sizes, [3.12502, 4.125, 4.5], strict=True))


def test_a_peer_without_a_plan_of_its_size_is_named(capsys):
    named = {"NF4": method("NF4", 0.1, size=4.127), "HQQ 4 bits": method("HQQ 4 bits", 0.1, size=4.5)}
    ours = our_row("blocks", our_sizes([4.127])[0])
    pairs = make_pairs(named | {ours: method(ours, 0.02, size=4.124)}, "blocks")
    assert [pair.peer.row for pair in pairs] == ["NF4"]
    assert "HQQ 4 bits: left out" in capsys.readouterr().out


def test_a_row_that_a_draw_lacks_is_named_and_left_out(tmp_path, capsys):
    for folder, names in {"text-free": ["NF4"], "draw-0": ["GPTQ", "ours"], "draw-1": ["GPTQ"]}.items():
        (tmp_path / folder / "rows").mkdir(parents=True)
        for name in names:
            (tmp_path / folder / "rows" / f"{name}.json").write_text(row(name, 0.1).model_dump_json())
    draws = read_draws(tmp_path)
    assert {name: len(rows) for name, rows in draws.items()} == {"NF4": 1, "GPTQ": 2}
    assert "ours: left out, as 1 of 2 draws have it" in capsys.readouterr().out


def test_a_version_that_loses_more_than_another_is_named(tmp_path, capsys):
    def version(name, losses):
        for number, loss in enumerate(losses):
            folder = tmp_path / name / f"draw-{number}" / "rows"
            folder.mkdir(parents=True)
            (folder / "ours.json").write_text(row("ours", loss, seed=number).model_dump_json())
        return tmp_path / name

    earlier = version("earlier", [0.1, 0.1])
    print_against(version("same", [0.1, 0.1]), earlier, ["test"])
    assert "Worse than there: none" in capsys.readouterr().out
    print_against(version("worse", [0.2, 0.2]), earlier, ["test"])
    assert "Worse than there: ours on test" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="with other draws"):
        print_against(version("shorter", [0.1]), earlier, ["test"])


def test_tables_need_rows_and_a_text_that_they_were_measured_on(tmp_path):
    with pytest.raises(SystemExit, match="has no rows to print"):
        print_tables(tmp_path, ["test"], ["blocks"])
    (tmp_path / "text-free" / "rows").mkdir(parents=True)
    (tmp_path / "text-free" / "rows" / "NF4.json").write_text(row("NF4", 0.1).model_dump_json())
    with pytest.raises(SystemExit, match="no row was measured on other: there are test"):
        print_tables(tmp_path, ["other"], ["blocks"])


def test_every_method_of_the_table_is_valid():
    rows = methods.all_rows(Namespace(bits="4,3", rows=""))
    assert len(rows) == 2 * len(methods.METHODS) + len({grid for curve in methods.CURVES.values() for grid in curve})
