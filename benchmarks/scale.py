"""Time and memory of quantization by size of the model, beside llmcompressor in the same run.

    python -m benchmarks.scale --out DIR                                  # 7B, 13B, then smaller ones
    python -m benchmarks.scale --out DIR --sizes 7B --rows fast,gptq
    python -m benchmarks.scale --out DIR --sizes 128x256x2,128x512x2,256x512x2 --languages eng,swa     # on a CPU
    python -m benchmarks.scale --out DIR --print

Models are Llamas of random weights in bfloat16, made on disk and removed after use. Each row is a process of its own, from a model on disk to a
checkpoint on disk. Rows that are done are not computed again; those that failed are. llmcompressor (benchmarks/peers.txt) reads the same tokens
as our GPTQ, in sequences of 2,048. Random weights serve for time and memory, never for quality.
"""

from __future__ import annotations

import argparse
import shutil
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from benchmarks.scale_rows import GPTQ, KINDS, MEASURED_ROWS, PEER, STREAMED, ScaleRow, read_rows, run_child
from benchmarks.scale_shapes import MEASURED, POSITIONS, Shape, find_shape
from benchmarks.scale_tables import print_tables
from laaciq import reference
from laaciq.corpus import Texts, read_split
from laaciq.engine.environment import version_words
from laaciq.engine.run_folder import RunFolder
from laaciq.engine.store import key_of
from laaciq.models import find_model
from laaciq.models.loading import skeleton
from laaciq.options import BUILTIN, MeasureOptions
from laaciq.profiling.activations import prepare_whole

# The aims are those of 7B and 13B.
SIZES = ("7B", "13B", "1.1B", "3B", "0.3B")
STREAMED_SIZE = "13B"
# Options that all rows of a folder share.
SETTINGS = ("texts", "languages", "budget", "gpu_memory", "host_memory", "gpu_cap", "served_bound")


@dataclass
class Benchmark:
    """`began` is when this run of it did."""

    options: argparse.Namespace
    store: RunFolder
    began: float

    def run(self) -> None:
        for size in self.options.sizes.split(","):
            shape = find_shape(size)
            kinds = [kind for kind in self.options.rows.split(",") if self._is_due(shape, kind)]
            if kinds:
                model = self._model(shape)
                for kind in kinds:
                    self._row(shape, kind, model)
                if not self.options.keep_models:
                    shutil.rmtree(model)

    def _is_due(self, shape: Shape, kind: str) -> bool:
        if kind == STREAMED and shape.name in MEASURED and shape.name != STREAMED_SIZE:
            return False
        name, key = _row_name(shape, kind), self._key(shape, kind)
        return not self.store.valid(name, key) or self.store.read(name, ScaleRow).failure is not None

    def _row(self, shape: Shape, kind: str, model: Path) -> None:
        out = self.options.out / "quantized"
        shutil.rmtree(out, ignore_errors=True)
        words = self._words(kind, model, out)
        log = self.options.out / "logs" / f"{shape.name}-{kind}.log"
        ended = run_child(words, log=log, gpu_cap=self.options.gpu_cap, most_seconds=self.options.row_seconds)
        shutil.rmtree(out, ignore_errors=True)
        row = ScaleRow(
            size=shape.name,
            kind=kind,
            command=words,
            machine=_machine(),
            tokens=sum(row.numel() for row in load_file(self._tokens(model)).values()),
            languages=len(self._texts.languages),
            seconds=ended.seconds,
            stages=ended.stages,
            memory=ended.memory,
            device_bytes=ended.device_bytes,
            announcement=ended.announcement,
            announced_after=ended.announced_after,
            failure=ended.failure,
        )
        self.store.keep(_row_name(shape, kind), row, self._key(shape, kind))
        figures = f"GPU {row.device_bytes / 2**30:.1f} GiB, host {row.memory.anonymous / 2**30:.1f} GiB"
        self._say(
            f"{shape.name} {kind}: {row.seconds:.1f} s, {figures}" + (f", FAILED: {row.failure}" if row.failure else "")
        )

    def _words(self, kind: str, model: Path, out: Path) -> list[str]:
        given = self.options
        if kind == PEER:
            return ["llmcompressor", str(model), str(self._tokens(model)), str(out)]
        words = ["laaciq", "quantize", str(model), "--texts", given.texts, "--served-bound", given.served_bound]
        words += ["--languages", ",".join(self._texts.languages)]
        if kind == GPTQ:
            words += ["--method", "gptq", "--bits", "4"]
        else:
            words += ["--budget", given.budget, "--effort", "fast"]
        words += ["--gpu-memory", given.gpu_memory] if torch.cuda.is_available() and given.gpu_memory else []
        words += ["--host-memory", given.host_memory] if kind == STREAMED else []
        return [*words, "--out", str(out)]

    def _key(self, shape: Shape, kind: str) -> str:
        return key_of("scale", str(shape), kind, {name: getattr(self.options, name) for name in SETTINGS})

    def _model(self, shape: Shape) -> Path:
        """Made in one step, so that a killed benchmark leaves none in half."""
        model, partial = self.options.out / "models" / shape.name, self.options.out / "models" / "partial"
        if not model.exists():
            began = time.perf_counter()
            shutil.rmtree(partial, ignore_errors=True)
            shape.write(partial)
            partial.rename(model)
            torch.cuda.empty_cache()
            self._say(f"{shape.name}: {shape.parameters:,} weights written in {time.perf_counter() - began:.0f} s")
        return model

    def _tokens(self, model: Path) -> Path:
        """The tokens that our GPTQ reads, end to end in rows of as many as the model has positions. The same for every size."""
        path: Path = self.options.out / "tokens.safetensors"
        if not path.exists():
            empty, texts = skeleton(find_model(model)), self._texts
            passages = [p for code in texts.languages for p in prepare_whole(empty, texts[code], MeasureOptions())]
            tokens = [token for passage in passages for sequence in passage.sequences for token in sequence.inputs]
            rows = torch.tensor(tokens).split(POSITIONS)
            save_file({f"{number:06}": row.clone() for number, row in enumerate(rows)}, path)
        return path

    @cached_property
    def _texts(self) -> Texts:
        calibration = read_split(self.options.texts).calibration
        if self.options.languages:
            return calibration.select(self.options.languages.split(","))
        return calibration.select(reference.languages()) if self.options.texts == BUILTIN else calibration

    def _say(self, text: str) -> None:
        print(f"[{time.perf_counter() - self.began:5.0f} s] {text}", flush=True)


def _row_name(shape: Shape, kind: str) -> str:
    return f"rows/{shape.name}-{kind}.json"


def _machine() -> str:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"
    return f"{device}; {version_words()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for rows and logs, and for models while they are needed"
    )
    parser.add_argument("--sizes", default=",".join(SIZES), help="in this order; also hidden x feed-forward x blocks")
    parser.add_argument(
        "--rows", default=",".join(KINDS), help=f"in this order; {STREAMED} is for {STREAMED_SIZE} alone"
    )
    parser.add_argument("--texts", default=BUILTIN)
    parser.add_argument("--languages", default="", help="default: those of the reference model, or all of other texts")
    parser.add_argument("--budget", default="4.25")
    parser.add_argument("--served-bound", default="1000", help="random models serve no language well")
    parser.add_argument("--gpu-memory", default="24GB", help="given to laaciq on a GPU; '' gives none")
    parser.add_argument("--host-memory", default="24GB", help=f"of the {STREAMED} row")
    parser.add_argument("--gpu-cap", type=float, default=0.0, help="GiB that torch may take in any row; 0: no bound")
    parser.add_argument("--row-seconds", type=float, default=3600.0, help="a row that takes longer is stopped")
    parser.add_argument("--keep-models", action="store_true")
    parser.add_argument(
        "--print", action="store_true", dest="only_print", help="print the tables of the rows that are there"
    )
    options = parser.parse_args()
    if not options.only_print:
        if unknown := set(options.rows.split(",")) - KINDS.keys():
            parser.error(f"no row is called {min(unknown)}: there are {', '.join(KINDS)}")
        settings = {name: getattr(options, name) for name in SETTINGS}
        store = RunFolder(options.out / MEASURED_ROWS, description={"command": "benchmarks.scale", **settings})
        try:
            Benchmark(options, store, time.perf_counter()).run()
        finally:
            store.close()
    print_tables(read_rows(options.out))


if __name__ == "__main__":
    main()
