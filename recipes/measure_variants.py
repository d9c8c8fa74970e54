"""Measure what `train_variants.py` trained: figures of every variant and seed, in one small file.

    python recipes/measure_variants.py --variants FOLDER --out FILE.json

Each checkpoint is profiled on the built-in calibration text, rounded to nearest at 3 and 4 bits, and measured on the built-in test text, in
float32. A process measures one checkpoint, `--jobs` at a time, and writes `figures.json` beside it; the same command resumes. The file is a
`laaciq.studies.variants.Variants`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

FIGURES = "figures.json"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--variants", type=Path, required=True, help="folder that train_variants.py wrote")
    parser.add_argument("--out", type=Path, help="file for all figures")
    parser.add_argument("--passages", type=int, help="measure at most this many passages per language (default: all)")
    parser.add_argument("--jobs", type=int, default=4, help="processes that measure at the same time")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--measure", type=Path, metavar="CHECKPOINT", help="measure this one, in this process")
    return parser.parse_args()


def measure(folder: Path, *, device: str, passages: int | None) -> None:
    import torch
    from attention import register, use_attention

    from laaciq.corpus import read_split
    from laaciq.models import find_model, load
    from laaciq.options import BUILTIN, MeasureOptions
    from laaciq.studies.variants import measure_variant
    from laaciq.trials.session import Session

    training = json.loads((folder / "training.json").read_text())
    table = json.loads((folder / "languages.json").read_text())
    recipe = training["recipe"]
    register()
    model = load(find_model(folder), device=device, dtype=torch.float32)
    use_attention(model.module, recipe["model"]["attention"])
    split = read_split(BUILTIN).select([row["language"] for row in table])
    if passages is not None:
        test, calibration = split.test.spread(passages), split.calibration.spread(passages)
        split = replace(split, test=test, calibration=calibration)
    name, _, seed = folder.name.rpartition("-")
    figures = measure_variant(
        Session.of(model, split, MeasureOptions()),
        name=name,
        seed=int(seed),
        options=recipe["model"] | recipe["training"],
        exposure={row["language"]: row["exposure_tokens"] for row in table},
        tokens_seen=training["tokens_seen"],
    )
    (folder / "part").write_text(figures.model_dump_json(indent=1))
    os.replace(folder / "part", folder / FIGURES)


def measure_alone(arguments: argparse.Namespace, folder: Path) -> bool:
    """Measure one checkpoint in a process of its own; True if its figures are there."""
    if not (folder / FIGURES).exists():
        command = [sys.executable, __file__, "--variants", str(arguments.variants), "--measure", str(folder)]
        command += ["--device", arguments.device]
        command += [] if arguments.passages is None else ["--passages", str(arguments.passages)]
        with (folder / "log.txt").open("a") as log:
            subprocess.run(  # noqa: S603 (this file again)
                command, stdout=log, stderr=subprocess.STDOUT, check=False
            )
    complete = (folder / FIGURES).exists()
    outcome = "measured" if complete else f"failed, see {folder / 'log.txt'}"
    print(f"{folder.name}: {outcome}", flush=True)
    return complete


def gather(folders: list[Path], out: Path) -> None:
    from laaciq.studies.variants import Variant, Variants

    figures = [Variant.model_validate_json((folder / FIGURES).read_text()) for folder in folders]
    out.write_text(Variants(variants=figures).model_dump_json())
    for variant in figures:
        needed = sum(variant.bits_per_byte.values()) / len(variant.bits_per_byte)
        words = [f"max κ {variant.max_kurtosis:.2f}, {needed:.3f} bits per byte"]
        words += [f"{x.bits} bits: mean D {x.mean:.3f}" for x in variant.losses if x.mean is not None]
        words += [f"disparity {x.disparity.plug_in.value:.3f}" for x in variant.losses if x.disparity is not None]
        print(f"{variant.name}-{variant.seed}: {', '.join(words)}")


def main() -> None:
    arguments = parse()
    if arguments.measure is not None:
        measure(arguments.measure, device=arguments.device, passages=arguments.passages)
        return
    if arguments.out is None:
        raise SystemExit("give --out, a file for all figures")
    folders = sorted(path.parent for path in arguments.variants.glob("*/training.json"))
    if not folders:
        raise SystemExit(f"no trained variant in {arguments.variants}: run train_variants.py first")
    with ThreadPoolExecutor(arguments.jobs) as pool:
        complete = list(pool.map(lambda folder: measure_alone(arguments, folder), folders))
    gather([folder for folder, is_complete in zip(folders, complete, strict=True) if is_complete], arguments.out)
    if not all(complete):
        raise SystemExit(f"{complete.count(False)} of {len(folders)} failed: the same command tries them again")


if __name__ == "__main__":
    main()
