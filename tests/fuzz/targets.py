"""What is damaged, how, and which readers and commands take it afterwards."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import typer
from typer.testing import CliRunner

import laaciq
from laaciq.cli import options as shared
from laaciq.commands.bench import recorded_original
from laaciq.commands.profile import read_exposure
from laaciq.errors import BadOption
from laaciq.models import find_model, load, stream_tensors
from laaciq.options import RunOptions
from laaciq.planning.decision import read_plan_file
from laaciq.quantization.checkpoint import apply_checkpoint
from laaciq.quantization.dequantized import load_dequantized
from laaciq.quantization.model import quantize_model
from laaciq.scoring.likelihood import nll_by_passage
from laaciq.scoring.sequences import prepare_all
from laaciq.trials.quantized_copy import copy_of
from tests.fuzz import mutations as change
from tests.fuzz import texts as text
from tests.fuzz.inputs import FOREIGN, Inputs
from tests.fuzz.mutations import Mutator

Use = Callable[[Path, Inputs], object]

_FILE = (change.no_file, change.random_bytes, change.cut, change.flipped_bits)
_TEXT = (*_FILE, change.not_utf8, change.sparse)
# Of files whose entries another library defines.
_JSON = (
    *(*_TEXT, change.other_top, change.no_number, change.deep, change.half_surrogate, change.key_twice),
    *(change.other_value, change.other_value, change.lost_entry, change.more_entries),
)
# Of files that are too large for every entry to be looked at.
_LARGE = (*_TEXT, change.other_top, change.deep, change.other_value, change.lost_entry, change.more_entries)
# Of files whose entries we define.
_RECORD = (*_JSON, change.other_type, change.other_type)
# A text that is cut short is a text.
_LINES = (change.no_file, change.random_bytes, change.not_utf8, change.sparse, *[text.lines] * 3, text.folder_of_texts)
_TENSORS = (
    *(*_FILE, change.no_numbers_in_tensor, change.no_tensor, change.other_shape, change.integers),
    *(change.other_values_in_tensor, change.other_header, change.other_header),
)


def _perhaps_optional(path: Path, random: Random) -> change.Mutation:
    """Some parts of other libraries' layers may be missing."""
    return dataclasses.replace(change.no_tensor(path, random), wrong=False)


_FOREIGN_TENSORS = tuple(_perhaps_optional if mutator is change.no_tensor else mutator for mutator in _TENSORS)


@dataclass(frozen=True)
class Target:
    """`file` of the input `source` is damaged by one of the `mutators`; `use` then takes the input. `optional`: the file may also be
    missing."""

    name: str
    source: str
    file: str
    mutators: tuple[Mutator, ...]
    use: Use
    optional: bool = False


def use_model(folder: Path, inputs: Inputs) -> None:
    """Find, fingerprint, load and score, as every command does that takes a model."""
    found = find_model(folder)
    assert found.fingerprint
    model = load(found, device="cpu")
    passages = inputs.split.test["swa"].at([0, 1])
    nll_by_passage(model, prepare_all(model, passages))


def stream_model(folder: Path, inputs: Inputs) -> None:
    found = find_model(folder)
    list(stream_tensors(found))
    use_model(folder, inputs)


def load_model(folder: Path, inputs: Inputs) -> None:
    load(find_model(folder), device="cpu")


def use_checkpoint(folder: Path, inputs: Inputs) -> None:
    """Ours: as codes, as plain weights, and in the place of the original's."""
    use_model(folder, inputs)
    load_dequantized(find_model(folder), device="cpu")
    apply_checkpoint(copy_of(inputs.model), folder)


def export(folder: Path, inputs: Inputs) -> None:
    for format in ("compressed-tensors", "gguf"):
        laaciq.export(folder, format=format, out=folder.parent / format)


def check_and_card(run: Path, inputs: Inputs) -> None:
    laaciq.check(run, max_degradation=0.5, max_disparity=0.5)
    laaciq.card(run, out=run.parent / "CARD.md")


def card(run: Path, inputs: Inputs) -> None:
    laaciq.card(run, out=run.parent / "CARD.md")


def use_profile(run: Path, inputs: Inputs) -> None:
    laaciq.screen(run)
    laaciq.survey([run])
    card(run, inputs)


def use_marker(run: Path, inputs: Inputs) -> None:
    with contextlib.suppress(BadOption):
        recorded_original(run / "checkpoint")
    check_and_card(run, inputs)


def use_plan(path: Path, inputs: Inputs) -> None:
    plan = read_plan_file(path, inputs.model.anatomy, inputs.split.calibration.languages)
    # Epochs and passages may be many; that they are tuned is not what is tried here.
    plan = plan.model_copy(update={"tuned": 0})
    layers, _ = quantize_model(inputs.model, plan, inputs.calibration)
    list(layers)


def use_texts(path: Path, inputs: Inputs) -> None:
    split = laaciq.read_split(path)
    for part in (split.calibration, split.validation, split.test):
        assert part.fingerprint
        assert all(passages.byte_count >= 0 for passages in part.by_language.values())


def use_recipe(path: Path, inputs: Inputs) -> None:
    """As `laaciq run --config` reads it, up to its options. Usage errors of the command line end with status 2 too."""
    result = CliRunner().invoke(_options_of_run, ["--config", str(path)])
    if isinstance(result.exception, SystemExit) and result.exit_code == 2:
        raise BadOption(result.output)
    if result.exception is not None:
        raise result.exception


_options_of_run = typer.Typer()


@_options_of_run.command()
@shared.takes(RunOptions)
def _run(**given: Any) -> None:
    RunOptions.of(**given)


def use_original_card(folder: Path, inputs: Inputs) -> None:
    """The card of the original says which license it has."""
    run = inputs.copy("run", folder.parent)
    evaluation = json.loads((run / "evaluation.json").read_text())
    change.replace(run / "evaluation.json", json.dumps(evaluation | {"original": str(folder)}).encode())
    card(run, inputs)


def _license(path: Path, random: Random) -> change.Mutation:
    heads = (
        *(
            "license: mit",
            "license: [a, b]",
            "license: &a [*a]",
            "- a",
            "license: " + "[" * 3000,
            "license: 3",
            "a: [*b]",
        ),
        *("license: !!python/name:os.system", "license: \x01", "license: 2020-99-99", "license: 'a\\nb'"),
    )
    change.replace(path, f"---\n{random.choice(heads)}\n---\n# card\n".encode())
    return change.Mutation("another head")


TARGETS: tuple[Target, ...] = (
    Target("config.json", "model", "config.json", _JSON, use_model),
    Target("config.json", "model", "config.json", _JSON, use_model),
    Target("model.safetensors", "model", "model.safetensors", _TENSORS, use_model),
    Target("tokenizer.json", "model", "tokenizer.json", _LARGE, use_model, optional=True),
    Target("tokenizer_config.json", "model", "tokenizer_config.json", _JSON, use_model, optional=True),
    Target("generation_config.json", "model", "generation_config.json", _JSON, use_model, optional=True),
    Target("index", "sharded", "model.safetensors.index.json", _RECORD, stream_model),
    Target("shard", "sharded", "model-00002-of-00002.safetensors", _TENSORS, stream_model),
    Target("GGUF", "gguf/model.gguf", "", (*_FILE, text.gguf_header, text.gguf_word, text.gguf_word), use_model),
    *(Target(f"{name} config", name, "config.json", _JSON, load_model) for name in FOREIGN),
    *(Target(f"{name} weights", name, "model.safetensors", _FOREIGN_TENSORS, load_model) for name in FOREIGN),
    Target("checkpoint config", "checkpoint", "config.json", _JSON, use_checkpoint),
    Target("checkpoint weights", "checkpoint", "model.safetensors", _TENSORS, use_checkpoint),
    Target("exported config", "in-blocks", "config.json", _JSON, export),
    Target("exported plan", "in-blocks", "plan.json", _RECORD, export),
    Target("exported weights", "in-blocks", "model.safetensors", _TENSORS, export),
    Target("plan", "plan.json", "", _RECORD, use_plan),
    Target("plan", "plan.json", "", _RECORD, use_plan),
    Target("evaluation", "run", "evaluation.json", _RECORD, check_and_card),
    Target("plans", "run", "plans.json", _RECORD, card),
    Target("profile", "run", "profile.json", _RECORD, use_profile),
    Target("marker", "run", "run.json", _JSON, use_marker),
    Target("run's plan", "run", "checkpoint/plan.json", _RECORD, card),
    Target(
        "texts", "texts", "swa.txt", (*_TEXT, text.lines, text.lines, text.folder_of_texts), use_texts, optional=True
    ),
    Target("jsonl", "texts.jsonl", "", (*_TEXT, text.records, text.records, text.column), use_texts),
    Target("parquet", "texts.parquet", "", (*_FILE, text.records, text.records, text.column), use_texts),
    Target("recipe", "recipe.yaml", "", (change.no_file, change.not_utf8, text.recipe, text.recipe_value), use_recipe),
    Target("exposure", "exposure.json", "", _RECORD, lambda path, inputs: read_exposure(path)),
    Target("original's card", "model", "README.md", (_license,), use_original_card),
)
