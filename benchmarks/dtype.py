"""Time to measure a model in bfloat16 beside float32 on the same text, and how far losses move.

    python -m benchmarks.dtype MODEL --device cpu
    python -m benchmarks.dtype reference --languages eng,hin --passages 4

The candidate is rounded to nearest at 4 bits in groups of 64. *Pass* is the original alone, *candidate* a second pass with quantized weights.
*Largest change of D* is over languages, in points: D in bfloat16 less D in float32.
"""

from __future__ import annotations

import argparse
import time
from typing import Literal

import numpy as np
import torch

from laaciq.options import MeasureOptions, WeightOptions
from laaciq.planning.rules import make_plans
from laaciq.studies.texts import shortened
from laaciq.trials.candidate import TextFreePlan
from laaciq.trials.session import Session

TYPES: tuple[Literal["float32", "bfloat16"], ...] = ("float32", "bfloat16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default="reference")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--languages", default="eng,hin,jpn,swa")
    parser.add_argument("--passages", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=48, help="per passage")
    options = parser.parse_args()
    print(f"{options.model}, {options.languages}, {options.passages} passages of {options.tokens} tokens per language")
    passes, losses = [], []
    for dtype in TYPES:
        session = Session.open(
            options.model,
            "builtin",
            MeasureOptions(dtype=dtype, served_bound=1000),
            languages=options.languages.split(","),
            device=options.device,
        )
        plan = make_plans(session.original.anatomy, WeightOptions(bits=4, group_size=64), None).first
        texts = shortened(session.costs.model, session.split.test, passages=options.passages, tokens=options.tokens)
        began = time.perf_counter()
        session.original_losses(texts)
        passed = time.perf_counter()
        measured = session.losses(TextFreePlan("4 bits", "4", plan), texts)
        passes.append(passed - began)
        losses.append({code: np.expm1(m.loss.sum() / sum(m.tokens)) for code, m in measured.items()})
        print(f"{dtype:10} pass {passes[-1]:6.1f} s  candidate {time.perf_counter() - passed:6.1f} s", flush=True)
    exact, fast = losses
    moved = {code: 100 * (fast[code] - exact[code]) for code in exact}
    most = max(moved, key=lambda code: abs(moved[code]))
    print(f"bfloat16 over float32: {passes[1] / passes[0]:.2f} of the time, {torch.get_num_threads()} threads")
    print(f"Largest change of D: {moved[most]:+.1f} points ({most}, D {100 * exact[most]:.1f} % in float32)")


if __name__ == "__main__":
    main()
