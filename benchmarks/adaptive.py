"""What language tables cost at run time: the reference model's adaptive checkpoint with its tables, beside itself without them.

    python -m benchmarks.adaptive
    OMP_NUM_THREADS=1 python -m benchmarks.adaptive     # where other programs use the same cores
    python -m benchmarks.adaptive --json

Two batches of prompts are continued: one in a single language, and a mixed one in languages that have different tables. `laaciq.generate`
continues them with declared and with detected languages; the model's `generate` does so with the shared scales. The mixed batch is also
continued language by language with the shared scales, which separates the cost of splitting it from that of tables. All cases take turns in
one process; ratios are of medians. In float32 weights are dequantized, and a switch dequantizes them again; in bfloat16 the int4 kernels only
receive another table. Each data type runs in a separate process, because bfloat16 may need a setting before torch is imported.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from laaciq.commands.bench import SAFE_BFLOAT16

DTYPES = ("float32", "bfloat16")
LANGUAGES = ("eng", "swa", "hin", "tam")
# Room for a table each, and little text: how good the tables are makes no difference to time.
TABLE_OVERHEAD, PASSAGES = 1.0, 24
PROMPTS, NEW_TOKENS, ROUNDS = 8, 32, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--prompts", type=int, default=PROMPTS)
    parser.add_argument("--new-tokens", type=int, default=NEW_TOKENS)
    parser.add_argument("--measure", nargs=2, metavar=("CHECKPOINT", "DTYPE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        folder, dtype = options.measure
        measured = measure(Path(folder), dtype, options.prompts, options.new_tokens, options.rounds)
        print(json.dumps(measured))
        return
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        _make(checkpoint, Path(folder) / "texts")
        results = [_measure_apart(checkpoint, dtype, options) for dtype in DTYPES]
    if options.json:
        print(json.dumps(results, indent=1))
    else:
        print("\n\n".join(map(_table, results)))


def _make(checkpoint: Path, texts: Path) -> None:
    import laaciq

    chosen = laaciq.read_split().calibration.select(LANGUAGES).spread(PASSAGES)
    texts.mkdir()
    for code, passages in chosen.by_language.items():
        (texts / f"{code}.txt").write_text("\n".join(passages.texts), encoding="utf-8")
    laaciq.quantize(out=checkpoint, method="adaptive", texts=texts, table_overhead=TABLE_OVERHEAD)


def _measure_apart(checkpoint: Path, dtype: str, options: argparse.Namespace) -> dict[str, Any]:
    words = ["--rounds", options.rounds, "--prompts", options.prompts, "--new-tokens", options.new_tokens]
    command = [sys.executable, __file__, *map(str, words), "--measure", str(checkpoint), dtype]
    child = subprocess.run(command, env=SAFE_BFLOAT16 | os.environ, stdout=subprocess.PIPE, text=True, check=False)
    if child.returncode:
        sys.exit(f"measuring in {dtype} failed with status {child.returncode}")
    return json.loads(child.stdout)


def measure(checkpoint: Path, dtype: str, prompts: int, new_tokens: int, rounds: int) -> dict[str, Any]:
    import torch
    import transformers

    import laaciq
    from laaciq.quantization.layers import QuantizedLinear

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=getattr(torch, dtype)).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    layers = [layer for layer in model.modules() if isinstance(layer, QuantizedLinear)]
    settings: dict[str, Any] = {"do_sample": False, "min_new_tokens": new_tokens, "max_new_tokens": new_tokens}

    def without(texts: list[str]) -> None:
        batch = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left")
        tokenizer.batch_decode(model.generate(**batch, **settings))

    def split(parts: list[list[str]]) -> None:
        for part in parts:
            without(part)

    cases: dict[tuple[str, str], Callable[[], object]] = {}
    for batch, codes in _batches(prompts).items():
        texts = _prompts(codes)
        cases[batch, "without tables"] = partial(without, texts)
        if len(set(codes)) > 1:
            parts = [
                [t for t, other in zip(texts, codes, strict=True) if other == code] for code in dict.fromkeys(codes)
            ]
            cases[batch, "without, split"] = partial(split, parts)
        ours = partial(laaciq.generate, model, tokenizer, texts, **settings)
        cases[batch, "declared"] = partial(ours, languages=codes)
        cases[batch, "detected"] = ours
    seconds = _in_turn(cases, rounds)
    detector = _detector_seconds(_prompts(_batches(prompts)["mixed"]))
    return {
        "dtype": dtype,
        "threads": torch.get_num_threads(),
        "prompts": prompts,
        "new_tokens": new_tokens,
        "rounds": rounds,
        "tables": model.language.plan.tables,
        "int4_layers": sum(layer.kernel == "int4" for layer in layers),
        "layers": len(layers),
        "latency": [
            {
                "batch": batch,
                "languages": how,
                "seconds": median,
                "ratio": median / seconds[batch, "without tables"],
            }
            for (batch, how), median in seconds.items()
        ],
        "switch": _switch_cost(model, layers),
        "detector": {"seconds": detector, "share": detector / seconds["mixed", "detected"]},
    }


def _batches(prompts: int) -> dict[str, list[str]]:
    """The language of every prompt."""
    return {"one language": ["swa"] * prompts, "mixed": [LANGUAGES[k % len(LANGUAGES)] for k in range(prompts)]}


def _prompts(codes: list[str]) -> list[str]:
    """Beginnings of test passages, all different and about equally long."""
    import laaciq

    test = laaciq.read_split().test
    return [test[code].texts[k][:60] for k, code in enumerate(codes)]


def _in_turn(cases: dict[tuple[str, str], Callable[[], object]], rounds: int) -> dict[tuple[str, str], float]:
    """Median seconds of each; the first round is a warm-up."""
    taken: dict[tuple[str, str], list[float]] = {case: [] for case in cases}
    for _ in range(1 + rounds):
        for case, work in cases.items():
            taken[case].append(_seconds(work))
    return {case: statistics.median(times[1:]) for case, times in taken.items()}


def _switch_cost(model: Any, layers: list[Any]) -> dict[str, Any]:
    """Seconds of one switch from table to table. It must neither move nor change the weights of any kernel."""
    tables = range(len(model.language.plan.tables))
    codes = [layer.source.tiles for layer in layers if layer.kernel == "int4"]
    before = [(tensor.data_ptr(), tensor.clone()) for tensor in codes]
    taken = []
    for table in [*tables, *tables, *tables]:
        began = time.perf_counter()
        with model.language.using(table):
            taken.append(time.perf_counter() - began)
            now = [layer.source.tiles for layer in layers if layer.kernel == "int4"]
            copied = any(
                tensor.data_ptr() != place or not tensor.equal(held)
                for tensor, (place, held) in zip(now, before, strict=True)
            )
            if copied:
                sys.exit("a switch of tables touched the weights of the int4 kernels: it must copy none")
    return {"seconds": statistics.median(taken), "copies_kernel_weights": False if codes else None}


def _detector_seconds(texts: list[str]) -> float:
    from laaciq.corpus.identification import LanguageIdentifier

    identifier = LanguageIdentifier()
    return statistics.median(_seconds(lambda: [identifier.likeliest(text) for text in texts]) for _ in range(5))


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _table(measured: dict[str, Any]) -> str:
    path = f"{measured['int4_layers']} of {measured['layers']} layers on int4 kernels"
    switch, detector = measured["switch"], measured["detector"]
    tables = "; ".join(" ".join(members) for members in measured["tables"])
    lines = [
        f"{measured['dtype']} on {measured['threads']} threads, {path}, {measured['prompts']} prompts, {measured['new_tokens']} new "
        f"tokens each, medians of {measured['rounds']} rounds; tables: {tables}",
        f"{'batch':<14}{'languages':<16}{'seconds':>8}{'ratio':>8}",
    ]
    lines += [
        f"{row['batch']:<14}{row['languages']:<16}{row['seconds']:>8.3f}{row['ratio']:>8.2f}"
        for row in measured["latency"]
    ]
    copies = "" if switch["copies_kernel_weights"] is None else " (no weights copied)"
    lines.append(f"one switch of tables: {1000 * switch['seconds']:.2f} ms{copies}")
    lines.append(
        f"detecting {measured['prompts']} languages: {1000 * detector['seconds']:.2f} ms, "
        f"{100 * detector['share']:.2f} % of the mixed batch"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
