"""The tables of the frontier, printed from its rows: every peer beside our plan of its size, their ratios, and whether aims are reached."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.peers import ALL, OUR_GPTQ, PEERS, THEIR_GPTQ, Peer, Track, our_row, our_sizes, size_of
from benchmarks.rows import MeasuredMethod, MeasuredRow, Statistic, interval, read_draws
from laaciq.stats.estimate import Estimate

STATISTICS: tuple[Statistic, ...] = ("worst", "disparity", "mean")
BITS_CLASSES = (4, 3)
# At most this of the best peer's, in the order of `STATISTICS`.
AIMS_AS_USED, AIMS_SAME_TEXT = (0.4, 0.3, 1.0), (0.75, 0.6, 1.0)


@dataclass(frozen=True)
class Pair:
    """A peer, and our plan of its size."""

    peer: Peer
    theirs: MeasuredMethod
    ours: MeasuredMethod

    @cached_property
    def ratios(self) -> dict[Statistic, Estimate | None]:
        """Ours over theirs."""
        return {statistic: self.ours.ratio(self.theirs, statistic) for statistic in STATISTICS}


def print_tables(out: Path, tests: list[str], tracks: list[Track]) -> None:
    draws = read_draws(out)
    measured = next(iter(draws.values()))[0].tests
    if unknown := [test for test in tests if test not in measured]:
        sys.exit(f"no row was measured on {unknown[0]}: there are {', '.join(measured)}")
    if missing := [peer.row for peer in PEERS if peer.row not in draws]:
        print(f"Not measured: {'; '.join(missing)}.")
    for test in tests:
        methods = {name: MeasuredMethod.of(rows, test) for name, rows in draws.items()}
        for track in tracks:
            print(f"\n### Test text: {test}; size of {'the blocks' if track == 'blocks' else 'the whole model'}\n")
            pairs = make_pairs(methods, track)
            print_losses(pairs, track)
            print("\nOurs over the peer at its size, paired:\n")
            print("| peer | worst | disparity | mean |\n|---|---:|---:|---:|")
            for pair in pairs:
                cells = [interval(ratio, 2) for ratio in pair.ratios.values()]
                print(f"| {pair.peer.row} | {' | '.join(cells)} |")
            for bits in BITS_CLASSES:
                print_headlines(bits, [pair for pair in pairs if pair.peer.bits == bits])
    print_weight_errors(draws)
    print_times(draws)


def print_against(out: Path, earlier: Path, tests: list[str]) -> None:
    """Our rows over those of another version that ran the same command, paired by draw and document."""
    now, then = read_draws(out), read_draws(earlier)
    names = [name for name in now if name.startswith("our") and name in then]
    if not names:
        sys.exit(f"{earlier} has none of our rows in {out}: give both the same command")
    print(f"\n### Over the rows in {earlier}, paired\n")
    print("| row | test text | worst | disparity | mean |\n|---|---|---:|---:|---:|")
    worse = []
    for name in names:
        for test in tests:
            ours, before = (MeasuredMethod.of(draws[name], test) for draws in (now, then))
            if not same_texts(ours, before):
                sys.exit(
                    f"{earlier} was measured on other texts or with other draws than {out}: give both the same command"
                )
            ratios = [ours.ratio(before, statistic) for statistic in STATISTICS]
            print(f"| {name} | {test} | {' | '.join(interval(ratio, 2) for ratio in ratios)} |")
            if ours.collapsed > before.collapsed or any(ratio is not None and ratio.low > 1 for ratio in ratios):
                worse.append(f"{name} on {test}")
    print(f"\nWorse than there: {'; '.join(worse) or 'none, every interval includes 1 or lies below'}.")


def same_texts(one: MeasuredMethod, other: MeasuredMethod) -> bool:
    """And as many draws."""
    ours, theirs = one.losses, other.losses
    return (
        ours.codes == theirs.codes
        and [loss.shape for loss in ours.loss] == [loss.shape for loss in theirs.loss]
        and all((a == b).all() for a, b in zip(ours.tokens, theirs.tokens, strict=True))
    )


def make_pairs(methods: dict[str, MeasuredMethod], track: Track) -> list[Pair]:
    peers = [peer for peer in PEERS if peer.row in methods]
    sizes = our_sizes([size_of(methods[peer.row], track) for peer in peers])
    pairs = []
    for peer in peers:
        theirs = methods[peer.row]
        name = our_row(track, max(size for size in sizes if size <= size_of(theirs, track)))
        if name in methods:
            pairs.append(Pair(peer, theirs, methods[name]))
        else:
            print(f"{peer.row}: left out, as there is no row '{name}'")
    return pairs


def print_losses(pairs: list[Pair], track: Track) -> None:
    print(
        "| method | bits per weight | worst ΔNLL | collapsed | disparity | mean ΔNLL | seconds |\n"
        "|---|---:|---:|---:|---:|---:|---:|"
    )
    for pair in pairs:
        for name, method in ((pair.peer.row, pair.theirs), ("**ours** at that size", pair.ours)):
            worst, disparity, mean = (interval(method.estimate(statistic), 3) for statistic in STATISTICS)
            print(
                f"| {name} | {size_of(method, track):.3f} | {worst} {method.worst_language} | {method.collapsed} "
                f"| {disparity} | {mean} | {method.seconds:.0f} |"
            )


def print_headlines(bits: int, pairs: list[Pair]) -> None:
    """Against the best peer as people use it, and against the best one with our calibration text."""
    as_used = [pair for pair in pairs if pair.peer.texts != ALL]
    same_text = [pair for pair in pairs if pair.peer.texts == ALL]
    for words, compared, aims in (
        ("as people use it (English or no calibration text)", as_used, AIMS_AS_USED),
        ("with our calibration text", same_text, AIMS_SAME_TEXT),
    ):
        if compared:
            print(f"\n{bits} bits, against the best peer {words}:")
            for statistic, aim in zip(STATISTICS, aims, strict=True):
                print(f"- {statistic}: {headline(compared, statistic, aim)}")


def headline(pairs: list[Pair], statistic: Statistic, aim: float) -> str:
    estimates = [(pair, estimate) for pair in pairs if (estimate := pair.theirs.estimate(statistic)) is not None]
    if not estimates:
        return "no ratio, as every such peer lets a language collapse."
    pair, best = min(estimates, key=lambda entry: entry[1].value)
    ratio = pair.ratios[statistic]
    if ratio is None:
        return "no ratio, as ours lets a language collapse: the aim is missed."
    return f"{interval(ratio, 2)} of {pair.peer.row} ({best.value:.3f}); {aim_verdict(ratio, aim)}."


def aim_verdict(ratio: Estimate, aim: float) -> str:
    """By the interval: reached where all of it is, missed where none of it is."""
    if ratio.high <= aim:
        return f"the aim of {aim:g} is reached"
    if ratio.low > aim:
        return f"the aim of {aim:g} is missed"
    return f"the estimate {'reaches' if ratio.value <= aim else 'misses'} the aim of {aim:g}, the interval does not decide it"


def print_weight_errors(draws: dict[str, list[MeasuredRow]]) -> None:
    print("\nError of the blocks' weights against the source, ‖Ŵ − W‖ / ‖W‖, first draw:\n")
    for name, rows in draws.items():
        # AWQ moves scales between layers, so that its weights are others; over the whole model ours leaves most blocks as they are.
        if "AWQ" not in name and not name.startswith("ours, model"):
            print(f"- {name}: {rows[0].weight_error:.4f}")


def print_times(draws: dict[str, list[MeasuredRow]]) -> None:
    seconds = {name: sum(row.seconds for row in rows) / len(rows) for name, rows in draws.items()}
    if THEIR_GPTQ not in seconds:
        return
    theirs = seconds[THEIR_GPTQ]
    print(f"\nTime over that of {THEIR_GPTQ} ({theirs:.1f} s):\n")
    for name, ours in seconds.items():
        if name == OUR_GPTQ or name.startswith("ours, blocks"):
            print(f"- {name}: {ours:.1f} s, {ours / theirs:.2f}")
