"""Valid inputs of every kind, tiny and made once: each case damages a copy of one of them."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file, save_file

import laaciq
from laaciq.corpus import Split, read_split
from laaciq.models import LanguageModel, find_model, load
from laaciq.options import MeasureOptions
from laaciq.profiling.results import Profile
from laaciq.quantization.calibration import Calibration
from tests.fuzz.texts import write_records
from tests.tiny import save_tiny

LANGUAGES = ("eng", "swa", "hin")
_LINES, _LETTERS = 12, 40
FOREIGN = ("awq", "bitsandbytes-nf4-double", "compressed-tensors-packed", "gptq-v1-act-order", "gptq-v2")
# A masked model and an encoder-decoder.
OTHER_KINDS = ("bert", "mt5")
_OPTIONS = {
    "run": {"model": "m", "texts": "t", "languages": ["eng"], "bits": 3, "method": "gptq", "keep": 1.0, "seed": 1},
    "plan": {"budget": 4.25, "objective": "mean", "language_weight": ["swa=3"], "hold_out": ["tam"], "tune": 1},
    "quantize": {"method": "adaptive", "table_overhead": 0.5, "protect": ["0,1", "swa=1"], "group_size": 32},
    "check": {"run": "r", "max_degradation": 0.1, "max_disparity": 0.1, "strict": True},
    "mixture": {"calibration_passages": [1, 2], "leave_out": ["swa"], "rounds": 1, "single_language": "eng"},
    "bench": {"checkpoint": "c", "prompt_tokens": 8, "new_tokens": 2, "batch": 1, "dtype": "float32"},
    "card": {"run": "r", "base_model": "a/b", "name": "c", "license": "mit"},
}
_FOREIGN_DATA = Path(__file__).parent.parent / "models/foreign/data"


@dataclass(frozen=True)
class Inputs:
    """A folder with one valid input of each kind, by name."""

    folder: Path

    def copy(self, name: str, to: Path) -> Path:
        """A copy of one input, of hard links: mutations replace files and do not change them."""
        source = self.folder / name
        target = to / source.name
        if source.is_dir():
            shutil.copytree(source, target, copy_function=os.link)
        else:
            os.link(source, target)
        return target

    @property
    def run_options(self) -> dict[str, Any]:
        """Of the run that is among the inputs."""
        texts = str(self.folder / "texts")
        return {
            "texts": texts,
            "method": "gptq",
            "bits": 3,
            "group_size": 16,
            "keep": 1.0,
            "rank": 1,
            "served_bound": 100.0,
            "generate": True,
            "prompts": 2,
        }

    @cached_property
    def model(self) -> LanguageModel:
        return load(find_model(self.folder / "model"), device="cpu")

    @cached_property
    def split(self) -> Split:
        return read_split(self.folder / "texts")

    @cached_property
    def calibration(self) -> Calibration:
        profile = Profile.read(self.folder / "run/profile.json")
        return Calibration(profile, self.split.calibration, MeasureOptions(), self.split.validation)


def make_inputs(folder: Path) -> Inputs:
    """Write all inputs; a few seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = save_tiny("llama", folder / "model")
        _shard(model, folder / "sharded")
        _write_texts(folder)
        laaciq.run(model, out=folder / "run", device="cpu", **Inputs(folder).run_options)
        shutil.copytree(folder / "run/checkpoint", folder / "checkpoint")
        shutil.copyfile(folder / "run/checkpoint/plan.json", folder / "plan.json")
        shutil.copyfile(folder / "run/evaluation.json", folder / "evaluation.json")
        laaciq.quantize(model, out=folder / "in-blocks", method="rtn", bits=4, group_size=32)
        laaciq.export(folder / "in-blocks", format="gguf", out=folder / "gguf")
        for name in OTHER_KINDS:
            save_tiny(name, folder / name)
        laaciq.rating_sheet(folder / "run", out=folder / "rating")
    _write_answers(folder)
    for name in FOREIGN:
        shutil.copytree(_FOREIGN_DATA / name, folder / name, ignore=shutil.ignore_patterns("expected*"))
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(model / file, folder / name / file)
    (folder / "recipe.yaml").write_text("bits: 3\nmethod: gptq\nlanguages: [eng, swa]\n")
    (folder / "options.json").write_text(json.dumps(_OPTIONS))
    # Of tests, which have no types.
    simulated: Any = import_module("tests.lab.simulated")
    figures = simulated.variants(np.random.default_rng(0), simulated.CODES[:9])
    (folder / "variants.json").write_text(figures.model_dump_json())
    (folder / "exposure.json").write_text(json.dumps({"eng": 1000, "swa": 20}))
    return Inputs(folder)


def _write_texts(folder: Path) -> None:
    whole = laaciq.read_texts()
    lines = {code: [text[:_LETTERS] for text in whole[code].texts[:_LINES]] for code in LANGUAGES}
    texts = folder / "texts"
    texts.mkdir()
    for code, passages in lines.items():
        (texts / f"{code}.txt").write_text("\n".join(passages), encoding="utf-8")
    rows = [
        {"language": code, "text": text, "passage": number, "document": f"d{number}"}
        for code, passages in lines.items()
        for number, text in enumerate(passages)
    ]
    for suffix in ("jsonl", "parquet"):
        write_records(folder / f"texts.{suffix}", rows)


def _write_answers(folder: Path) -> None:
    """Of a rater to the sheets, and of two models to a task as lm-evaluation-harness logs them."""
    key = json.loads((folder / "rating/key.json").read_text())
    rows = [f"{pair['item']},{'AB'[number % 2]}" for number, pair in enumerate(key["pairs"])]
    (folder / "ratings.csv").write_text("\r\n".join(["item,choice", *rows]))
    for side in ("original", "quantized"):
        samples = [
            {"doc_id": number, "doc_hash": f"h{number}", "filter": "none", "metrics": ["acc"], "acc": 1.0, "doc": {"text": "a"}}
            for number in range(4)
        ]  # fmt: skip
        (folder / side).mkdir()
        (folder / side / "samples_xnli_sw.jsonl").write_text("\n".join(map(json.dumps, samples)))


def _shard(model: Path, folder: Path) -> None:
    """The same model in two shards with an index."""
    shutil.copytree(model, folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    where: dict[str, str] = {}
    for number, part in enumerate((names[::2], names[1::2]), start=1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file, metadata={"format": "pt"})
        where |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 1}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
