"""Every method on the reference model at 4 and 3 bits: what it costs the languages, at what size, and whether it helps at equal size.

    python -m benchmarks.methods --device cuda --workers 5 --out DIR
    python -m benchmarks.methods --out DIR --print

Methods that read text are calibrated on several draws of half the calibration text; losses are measured on the built-in test text. Intervals
cover other test documents and other draws. Mean and worst are ΔNLL in nats per token, disparity is max D − min D.

"At equal size" divides the worst language's loss by that of plain MSE grids of the same size: the mean of the next smaller and the next larger
one, weighted so that their sizes average to it. That is what a model would lose that stores some of its tensors on one grid and the rest on the
other, since losses of tensors add. It is linear in the losses of documents, so that the ratio has the same interval as any other.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from importlib import import_module

import numpy as np
import torch

from benchmarks.draws import MEASURE, Draw, add_draw_arguments, make_draws, open_session
from benchmarks.rows import DrawRows, MeasuredMethod, SizedCandidate, Statistic, interval, read_draws
from laaciq import reference
from laaciq.corpus import Split, read_split
from laaciq.engine.store import key_of
from laaciq.models import LanguageModel
from laaciq.options import BUILTIN, REFERENCE, WeightOptions, reads_text
from laaciq.planning.decision import SERVED_PASSAGES
from laaciq.planning.rules import make_plans, served_languages
from laaciq.quantization import Calibration
from laaciq.quantization.grid import Layers
from laaciq.quantization.model import quantize_model
from laaciq.quantization.plan import Plan, PlanSet
from laaciq.stats.estimate import Estimate
from laaciq.trials.candidate import InMemory
from laaciq.trials.quantized_copy import QuantizedCopy
from laaciq.trials.session import Session

STATISTICS: tuple[Statistic, ...] = ("mean", "worst", "disparity")
# Plain MSE grids as (bits, group size), which methods at so many bits are compared with: they enclose the sizes that are of interest.
CURVES: dict[int, list[tuple[int, int]]] = {
    4: [(4, 128), (4, 64), (4, 32), (4, 16), (6, 64), (8, 64)],
    3: [(3, 128), (3, 64), (3, 32), (3, 16), (4, 64), (6, 64)],
}
# Row → options; the strategies of the theory under their letters.
METHODS: dict[str, dict[str, object]] = {
    "round to nearest": {"method": "rtn"},
    "round to nearest, affine": {"method": "rtn", "symmetric": False},
    "MSE grid": {"method": "mse"},
    "MSE grid, affine": {"method": "mse", "symmetric": False},
    "ACIQ, one α per tensor": {"method": "aciq", "group_size": "tensor"},
    "ACIQ, by group": {"method": "aciq"},
    "LA-ACIQ, one α per tensor": {"method": "la-aciq", "group_size": "tensor"},
    "LA-ACIQ, by group": {"method": "la-aciq"},
    "effective weights": {"method": "effective"},
    "minimax over languages": {"method": "minimax"},
    "A: a checkpoint per language": {"method": "effective", "separate": True},
    "A: a table of scales per language": {"method": "adaptive", "table_overhead": 16.0},
    "B: 8 bits where κ > 50": {"method": "mse", "outlier_bits": 8},
    "B: 8 bits where κ > 1": {"method": "mse", "outlier_bits": 8, "outlier_kurtosis": 1.0},
    "B: 8 bits where κ > 1, by component": {
        "method": "mse", "outlier_bits": 8, "outlier_kurtosis": 1.0, "outlier_by": "component",
    },
    "B: attention at 8 bits": {"method": "mse", "attention_bits": 8},
    "C: adaptive, 2 tables": {"method": "adaptive", "table_overhead": 0.5},
    "kept: 1 % by magnitude": {"method": "mse", "keep": 1.0},
    "kept: 1 % by saliency": {"method": "mse", "keep": 1.0, "keep_by": "saliency"},
    "kept: 5 % by magnitude": {"method": "mse", "keep": 5.0},
    "protected: first and last block": {"method": "mse", "protect": ("0,11",)},
    "protected: first and last block at 8 bits": {"method": "mse", "protect": ("0,11",), "protect_bits": 8},
}  # fmt: skip
# Is a point of the curve.
PLAIN_METHOD = "MSE grid"


@dataclass(frozen=True)
class PlansInMemory:
    """Every language under the plan that serves it."""

    name: str
    key: str
    plans: PlanSet
    parts: Mapping[str, InMemory]

    def applied(self, copy: QuantizedCopy, language: str) -> AbstractContextManager[LanguageModel]:
        return self.parts[self.plans.serving(language)].applied(copy, language)


def in_memory(key: str, plan: Plan, layers: Layers, others: Mapping[str, torch.Tensor]) -> InMemory:
    return InMemory(plan.method, key, plan, lambda: (layers, others))


def quantized(session: Session, name: str, options: WeightOptions, key: str) -> SizedCandidate:
    """All checkpoints count towards the size."""
    texts, model = session.split.calibration, session.original
    calibration = Calibration(session.profile(texts), texts, MEASURE)
    began = time.perf_counter()
    plans = make_plans(model.anatomy, options, calibration.profile)
    parts = {}
    for part, plan in plans.plans.items():
        layers, others = quantize_model(model, plan, calibration)
        parts[part] = in_memory(key_of(key, part), plan, list(layers), others)
    sizes = [plan.size for plan in plans.plans.values()]
    return SizedCandidate(
        PlansInMemory(name, key, plans, parts),
        sum(size.block_bits_per_weight for size in sizes),
        sum(size.model_bits_per_weight for size in sizes),
        time.perf_counter() - began,
    )


def grid_row(bits: int, group_size: int) -> str:
    return f"plain MSE grid, {bits} bits, group {group_size}"


def method_row(bits: int, name: str) -> str:
    return f"{bits} bits, {name}"


def all_rows(arguments: argparse.Namespace) -> dict[str, WeightOptions]:
    rows = {}
    for bits in chosen_bits(arguments):
        for grid_bits, group_size in CURVES[bits]:
            options = WeightOptions.of(method="mse", bits=grid_bits, group_size=group_size)
            rows[grid_row(grid_bits, group_size)] = options
        for name in chosen_methods(arguments):
            rows[method_row(bits, name)] = WeightOptions.of(bits=bits, **METHODS[name])
    return rows


def chosen_bits(arguments: argparse.Namespace) -> list[int]:
    return [int(bits) for bits in arguments.bits.split(",")]


def chosen_methods(arguments: argparse.Namespace) -> list[str]:
    return [name for name in METHODS if arguments.rows in name]


@dataclass(frozen=True)
class MethodsDraw(Draw):
    """The methods that read text on one draw of half the calibration text."""

    def settings(self) -> Iterable[str]:
        return ("languages", "passages")

    def split(self) -> Split:
        count = len(next(iter(self.texts.by_language.values())))
        chosen = np.random.default_rng(self.number or 0).choice(count, count // 2, replace=False)
        drawn = self.texts.at(sorted(chosen.tolist()))
        return Split(drawn, drawn, self.tests[BUILTIN])

    def make(self, rows: DrawRows) -> None:
        for name, options in all_rows(self.arguments).items():
            if reads_text(options) == (self.number is not None):
                rows.row(name, partial(quantized, rows.session, name, options))


def run(arguments: argparse.Namespace) -> None:
    split = read_split(BUILTIN).select(arguments.languages.split(",") if arguments.languages else reference.languages())
    with open_session(REFERENCE, arguments, split) as session:
        whole = split.calibration.joined(split.validation)
        profile = session.profile(whole.spread(SERVED_PASSAGES))
        served = served_languages(profile, session.options.served_bound)
        tests = {BUILTIN: split.test.select(served).spread(arguments.passages)}
        # What reads no text takes its turn among the draws.
        numbers = [None, *range(arguments.draws)]
        make_draws(session, [MethodsDraw(number, arguments, whole.select(served), tests) for number in numbers])


def at_equal_size(method: MeasuredMethod, curve: list[MeasuredMethod]) -> Estimate | None:
    """The worst loss over that of plain grids of the same size; None where that is smaller or larger than any grid of the curve."""
    size = method.block_bits_per_weight
    smaller = [grid for grid in curve if grid.block_bits_per_weight <= size]
    larger = [grid for grid in curve if grid.block_bits_per_weight >= size]
    if not smaller or not larger:
        return None
    below = max(smaller, key=lambda grid: grid.block_bits_per_weight)
    above = min(larger, key=lambda grid: grid.block_bits_per_weight)
    distance = above.block_bits_per_weight - below.block_bits_per_weight
    share = (size - below.block_bits_per_weight) / distance if distance else 0.0
    plain = below.losses.scaled(1 - share).plus([above.losses.scaled(share)])
    return method.losses.worst_ratio(plain)


def verdict(ratio: Estimate) -> str:
    """By the interval."""
    if ratio.high < 1:
        return "helps"
    return "does not help" if ratio.low > 1 else "makes no difference beyond noise"


def print_tables(arguments: argparse.Namespace) -> None:
    methods = {name: MeasuredMethod.of(rows, BUILTIN) for name, rows in read_draws(arguments.out).items()}
    for bits in chosen_bits(arguments):
        curve = [methods[row] for grid in CURVES[bits] if (row := grid_row(*grid)) in methods]
        there = {name: methods[row] for name in chosen_methods(arguments) if (row := method_row(bits, name)) in methods}
        ratios = {name: at_equal_size(method, curve) for name, method in there.items() if name != PLAIN_METHOD}
        print(f"\n### {bits} bits\n")
        print(
            "| method | bits per weight | mean ΔNLL | worst ΔNLL | disparity | worst at equal size |\n"
            "|---|---:|---:|---:|---:|---:|"
        )
        for name, method in there.items():
            mean, worst, disparity = (interval(method.estimate(statistic), 3) for statistic in STATISTICS)
            ratio = ratios.get(name)
            print(
                f"| {name} | {method.block_bits_per_weight:.2f} | {mean} | {worst} {method.worst_language} "
                f"| {disparity} | {'' if ratio is None else interval(ratio, 2)} |"
            )
        print()
        for name, ratio in ratios.items():
            if ratio is not None:
                cost = f"{interval(ratio, 2)} times what the worst one loses with plain MSE grids of that size"
                print(f"- {name}, {bits} bits: {verdict(ratio)}; the worst language loses {cost}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_draw_arguments(parser)
    parser.add_argument("--passages", type=int, default=60, help="test passages per language, at most")
    parser.add_argument("--languages", default="", help="codes with commas between; by default those that are served")
    parser.add_argument("--bits", default="4,3")
    parser.add_argument("--rows", default="", help="only methods whose name contains this")
    parser.add_argument("--print", action="store_true", help="only print the rows that are there")
    arguments = parser.parse_args()
    if not arguments.print:
        run(arguments)
    print_tables(arguments)


if __name__ == "__main__":
    # By its name: workers import the classes of what they receive.
    import_module("benchmarks.methods").main()
