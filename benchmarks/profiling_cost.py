"""Cost of profiling the reference model in all its languages, beside one plain evaluation pass over the same text, in the same run.

    python -m benchmarks.profiling_cost

Without predictive redundancy and sensitivity. Prints both times and their ratio, which should be at most 1.5.
"""

from __future__ import annotations

import time

from laaciq import reference
from laaciq.corpus import read_split
from laaciq.models import find_model, load
from laaciq.options import OUTLIER_KURTOSIS, MeasureOptions
from laaciq.profiling.profile import profile_model
from laaciq.scoring.likelihood import nll_by_passage
from laaciq.scoring.sequences import prepare_all


def main() -> None:
    model, options = load(find_model("reference")), MeasureOptions()
    texts = read_split().calibration.select(list(reference.exposure()))

    def evaluate() -> None:
        for passages in texts.by_language.values():
            nll_by_passage(model, prepare_all(model, passages))

    def profile() -> None:
        profile_model(model, texts, options, outlier_kurtosis=OUTLIER_KURTOSIS)

    nll_by_passage(model, prepare_all(model, texts["eng"]))  # warm-up
    seconds = {}
    for name, work in (("plain evaluation", evaluate), ("profile", profile)):
        began = time.perf_counter()
        work()
        seconds[name] = time.perf_counter() - began
        print(f"{name}: {seconds[name]:.1f} s")
    print(f"ratio: {seconds['profile'] / seconds['plain evaluation']:.2f}")


if __name__ == "__main__":
    main()
