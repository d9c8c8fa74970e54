"""Every method on the reference model at 4 and 3 bits: what it costs the languages, at what size, and whether it helps at equal size.

    python -m benchmarks.methods [--device cuda] [--out methods.json]

Methods that read text are calibrated on several draws of half the calibration text; losses are measured on the built-in test text. Intervals
resample passages (the same for all languages: the text is parallel) and draws. Mean and worst are ΔNLL in nats a token, disparity is
max D − min D. "At equal size" compares with plain MSE grids (groups of 128, 64, 32, 16, and 6 bits) interpolated to the same bits a weight.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import torch

from benchmarks.drawn import DrawnLosses
from laaciq.corpus import Texts, read_split
from laaciq.engine.files import write_text
from laaciq.engine.progress import TerminalProgress
from laaciq.models import LanguageModel, find_model, load
from laaciq.options import MeasureOptions, WeightOptions, reads_text
from laaciq.planning.rules import make_plans
from laaciq.profiling.profile import profile_model
from laaciq.profiling.results import Profile
from laaciq.quantization import Calibration
from laaciq.quantization.model import quantize_model
from laaciq.quantization.plan import PlanSet
from laaciq.scoring.likelihood import nll_by_passage
from laaciq.scoring.sequences import prepare_all
from laaciq.stats.bootstrap import document_counts, percentile_interval
from laaciq.trials.quantized_copy import copy_of, put_layers

DRAWS = 5
RESAMPLES = 2000
PLAIN = "MSE grids"
MEASURE = MeasureOptions()

# Plain grids of several sizes, which everything else is compared with; at 3 bits the next size up is 4 bits.
CURVE: dict[int, list[dict[str, int]]] = {
    4: [{"bits": 4, "group_size": g} for g in (128, 64, 32, 16)]
    + [{"bits": 6, "group_size": 64}, {"bits": 8, "group_size": 64}],
    3: [{"bits": 3, "group_size": g} for g in (128, 64, 32, 16)]
    + [{"bits": 4, "group_size": 64}, {"bits": 6, "group_size": 64}],
}
# Row → options; the strategies of the theory under their letters.
ROWS: dict[str, dict[str, object]] = {
    "round to nearest": {"method": "rtn"},
    "round to nearest, affine": {"method": "rtn", "symmetric": False},
    "MSE grid": {"method": "mse"},
    "MSE grid, affine": {"method": "mse", "symmetric": False},
    "ACIQ, one α a tensor": {"method": "aciq", "group_size": "tensor"},
    "ACIQ by group": {"method": "aciq"},
    "LA-ACIQ, one α a tensor": {"method": "la-aciq", "group_size": "tensor"},
    "LA-ACIQ, by group": {"method": "la-aciq"},
    "effective weights": {"method": "effective"},
    "minimax over languages": {"method": "minimax"},
    "A: a checkpoint a language": {"method": "effective", "separate": True},
    "A: a table of scales a language": {"method": "adaptive", "table_overhead": 100.0},
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
# What is better left unsaid at equal size: it has the size of the curve itself, or none that is comparable.
ALONE = {"MSE grid"}


@dataclass(frozen=True)
class Row(DrawnLosses):
    bits_per_weight: float


STATISTICS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda loss: loss.mean(-1),
    "worst": lambda loss: loss.max(-1),
    "disparity": lambda loss: np.expm1(loss.max(-1)) - np.expm1(loss.min(-1)),
}


class Bench:
    def __init__(self, model: LanguageModel, test: Texts, calibrations: list[Calibration], served_bound: float) -> None:
        self.model, self.test, self.calibrations, self.bound = model, test, calibrations, served_bound
        self.prepared = {c: prepare_all(model, p) for c, p in test.by_language.items()}
        self.tokens = np.array(
            [[sum(len(s.targets) for s in p.sequences) for p in self.prepared[c]] for c in test.languages]
        )
        self.original = np.stack(list(self._nll(model, test.languages).values()))
        self.twin = copy_of(model)

    def row(self, options: dict[str, object]) -> Row:
        asked = WeightOptions.of(**options)
        used = self.calibrations if reads_text(asked) else self.calibrations[:1]
        losses, sizes = [], []
        for calibration in used:
            plans = make_plans(self.model.anatomy, asked, calibration.profile, served_bound=self.bound)
            losses.append(self._quantized(plans, calibration) - self.original)
            sizes.append(sum(plan.size.block_bits_per_weight for plan in plans.plans.values()))
        return Row(np.stack(losses), self.tokens, float(np.mean(sizes)))

    def _quantized(self, plans: PlanSet, calibration: Calibration) -> np.ndarray:
        """NLL, (languages, passages), each language under the checkpoint and the table that serve it."""
        found: dict[str, np.ndarray] = {}
        for name, plan in plans.plans.items():
            codes = [code for code in self.test.languages if plans.serving(code) == name]
            layers, others = quantize_model(self.model, plan, calibration)
            layers = list(layers)
            for table in dict.fromkeys(map(plan.table_of, codes)):
                put_layers(self.model, self.twin, layers, others=others, table=table)
                found |= self._nll(self.twin, [code for code in codes if plan.table_of(code) == table])
        return np.stack([found[code] for code in self.test.languages])

    def _nll(self, model: LanguageModel, codes: list[str]) -> dict[str, np.ndarray]:
        """By language; all passages go through together, since an accelerator wants large batches."""
        nll = nll_by_passage(model, [passage for code in codes for passage in self.prepared[code]])
        return dict(zip(codes, nll.reshape(len(codes), -1), strict=True))


def calibrations(model: LanguageModel, texts: Texts, draws: int) -> Iterator[Calibration]:
    """Half of the passages each time, the same for all languages."""
    count = len(next(iter(texts.by_language.values())))
    for draw in range(draws):
        chosen = sorted(np.random.default_rng(draw).choice(count, count // 2, replace=False).tolist())
        part = texts.at(chosen)
        yield Calibration(profile_model(model, part, MEASURE, outlier_kurtosis=50.0), part, MEASURE)


def summarise(row: Row, counts: np.ndarray, draw: np.ndarray, codes: list[str]) -> dict[str, object]:
    resampled = row.resampled(counts, draw)
    found: dict[str, object] = {
        "bits_per_weight": row.bits_per_weight,
        "worst_language": codes[row.per_language.argmax()],
    }
    for name, statistic in STATISTICS.items():
        found[name] = [float(statistic(row.per_language)), *percentile_interval(statistic(resampled))]
    return found


def against_curve(row: Row, curve: list[Row], counts: np.ndarray, draw: np.ndarray) -> list[float] | None:
    """Worst loss over that of plain grids at the same size, with interval; None beyond the curve's largest size."""
    sizes = np.array([point.bits_per_weight for point in curve])
    if not sizes.min() <= row.bits_per_weight <= sizes.max():
        return None

    def ratio(loss_of: Callable[[Row], np.ndarray]) -> np.ndarray:
        plain = np.log(np.stack([STATISTICS["worst"](loss_of(point)) for point in curve], -1))
        order = np.argsort(sizes)
        here = np.array([np.interp(row.bits_per_weight, sizes[order], line[order]) for line in np.atleast_2d(plain)])
        return STATISTICS["worst"](loss_of(row)) / np.exp(here)

    estimate = ratio(lambda point: point.per_language[None])
    return [float(estimate[0]), *percentile_interval(ratio(partial(Row.resampled, counts=counts, draw=draw)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--passages", type=int, default=60, help="test passages a language")
    parser.add_argument("--languages", default=None, help="only these, with commas between")
    parser.add_argument("--bits", default="4,3")
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--out", type=Path, help="also write the figures as JSON")
    asked = parser.parse_args()

    # In float32 everywhere, so that nothing but the weights differs.
    model = load(find_model("reference"), device=asked.device, dtype=torch.float32)
    split = read_split("builtin").select(None if asked.languages is None else asked.languages.split(","))
    calibrating = split.calibration.joined(split.validation)
    drawn = list(calibrations(model, calibrating, asked.draws))
    profile = cast("Profile", drawn[0].profile)
    served = [r.language for r in profile.languages if (r.bits_per_byte or 0) <= MEASURE.served_bound]
    bench = Bench(model, split.test.select(served).spread(asked.passages), drawn, MEASURE.served_bound)
    counts = document_counts(bench.tokens.shape[1], draws=RESAMPLES, seed=0)
    draw = np.random.default_rng(1).integers(0, asked.draws, RESAMPLES)
    every: dict[str, dict[str, dict[str, object]]] = {}
    rows = {name: options for name, options in ROWS.items() if asked.rows in name}
    for bits in map(int, asked.bits.split(",")):
        with TerminalProgress().stage(f"{bits} bits", len(rows) + len(CURVE[bits])) as advance:
            curve = []
            for plain in CURVE[bits]:
                curve.append(bench.row({"method": "mse", **plain}))
                advance(1)
            found = {}
            for name, options in rows.items():
                row = bench.row({"bits": bits, **options})
                found[name] = summarise(row, counts, draw, bench.test.languages)
                found[name]["at_equal_size"] = None if name in ALONE else against_curve(row, curve, counts, draw)
                advance(1)
        every[str(bits)] = found
        print_table(bits, found)
        print_sentences(bits, found)
        if asked.out:
            write_text(asked.out, json.dumps(every, indent=1, ensure_ascii=False))


def print_table(bits: int, found: dict[str, dict[str, object]]) -> None:
    print(f"\n### {bits} bits\n")
    print(
        "| method | bits a weight | mean ΔNLL | worst ΔNLL | disparity | worst at equal size |\n|---|---:|---:|---:|---:|---:|"
    )
    for name, row in found.items():
        cells = [_interval(row[statistic]) for statistic in STATISTICS]
        cells[1] += f" {row['worst_language']}"
        ratio = "" if row["at_equal_size"] is None else _interval(row["at_equal_size"], 2)
        print(f"| {name} | {row['bits_per_weight']:.2f} | {' | '.join(cells)} | {ratio} |")


def print_sentences(bits: int, found: dict[str, dict[str, object]]) -> None:
    print()
    for name, row in found.items():
        if row["at_equal_size"] is None:
            continue
        ratio, low, high = cast("list[float]", row["at_equal_size"])
        verdict = "helps" if high < 1 else "does not help" if low > 1 else "makes no difference beyond noise"
        cost = f"{ratio:.2f} [{low:.2f}, {high:.2f}] times what plain {PLAIN} of that size cost it"
        print(f"- {name}, {bits} bits: {verdict}; the worst language loses {cost}.")


def _interval(values: object, decimals: int = 3) -> str:
    value, low, high = cast("list[float]", values)
    return f"{value:.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]"


if __name__ == "__main__":
    main()
