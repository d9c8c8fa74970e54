"""What a GGUF export costs where it is read: nats per token of the original, of our checkpoint, and of the file in transformers and llama.cpp.

    python -m benchmarks.gguf_runtimes [--affine] [--languages eng,swa,hin,amh,zho] [--passages 12]

Needs `pip install '.[gguf]' llama-cpp-python`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import llama_cpp
import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import laaciq
from laaciq.exporting.gguf import FILE, write_gguf

Logits = Callable[[list[int]], torch.Tensor]


def in_transformers(folder: Path, **options: str) -> Logits:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options)

    @torch.inference_mode()
    def logits(ids: list[int]) -> torch.Tensor:
        return model(torch.tensor([ids])).logits[0]

    return logits


def in_llama_cpp(file: Path) -> Logits:
    model = llama_cpp.Llama(str(file), n_ctx=1024, logits_all=True, verbose=False)

    def logits(ids: list[int]) -> torch.Tensor:
        model.reset()
        model.eval(ids)
        return torch.from_numpy(np.array(model.scores[: len(ids)]))

    return logits


def nats(logits: Logits, sequences: list[list[int]]) -> float:
    total = 0.0
    for ids in sequences:
        total += torch.nn.functional.cross_entropy(logits(ids)[:-1], torch.tensor(ids[1:]), reduction="sum").item()
    return total / sum(len(ids) - 1 for ids in sequences)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--affine", action="store_true")
    parser.add_argument("--languages", default="eng,swa,hin,amh,zho")
    parser.add_argument("--passages", type=int, default=12)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        laaciq.quantize("reference", out=folder / "checkpoint", method="rtn", bits=4, symmetric=not options.affine)
        written = write_gguf(folder / "checkpoint", folder)
        print(
            f"{written.types}, {written.bits_before:.2f} → {written.bits_after:.2f} bits per weight, exact: {written.exact}"
        )
        readers = {
            "original": in_transformers(laaciq.reference.path()),
            "checkpoint": in_transformers(folder / "checkpoint"),
            "transformers": in_transformers(folder, gguf_file=FILE),
            "llama.cpp": in_llama_cpp(folder / FILE),
        }
        tokenizer = AutoTokenizer.from_pretrained(folder / "checkpoint")
        texts = laaciq.read_split("builtin").test.select(options.languages.split(","))
        print("language  " + "  ".join(f"{reader:>12}" for reader in readers))
        for code in texts.languages:
            sequences = [tokenizer(text)["input_ids"] for text in texts[code].texts[: options.passages]]
            print(f"{code:8}  " + "  ".join(f"{nats(logits, sequences):12.4f}" for logits in readers.values()))


if __name__ == "__main__":
    main()
