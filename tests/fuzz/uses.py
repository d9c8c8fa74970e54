"""The readers and commands that take an input, each as a user would call it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

import laaciq
from laaciq.cli import options as shared
from laaciq.commands.bench import recorded_original
from laaciq.errors import BadOption
from laaciq.lab.claims import training
from laaciq.lab.experiment import answers
from laaciq.lab.measurements.variants import variants_evidence
from laaciq.models import find_model, load, stream_tensors
from laaciq.models.loading import skeleton
from laaciq.options import VERBS, RunOptions
from laaciq.planning.decision import read_plan_file
from laaciq.quantization.checkpoint import apply_checkpoint
from laaciq.quantization.dequantized import load_dequantized
from laaciq.quantization.model import quantize_model
from laaciq.scoring.likelihood import nll_by_passage
from laaciq.scoring.sequences import prepare_all
from laaciq.trials.quantized_copy import copy_of
from tests.fuzz.inputs import Inputs
from tests.fuzz.mutations import replace


def use_model(folder: Path, inputs: Inputs) -> None:
    """Find, fingerprint, load and score, as every command does that takes a model."""
    found = find_model(folder)
    assert found.fingerprint
    skeleton(found)
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


def use_variants(path: Path, inputs: Inputs) -> None:
    """Read, and judged by every claim about training."""
    answers(training.CLAIMS, variants_evidence("variants", path, training.CLAIMS))


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
    replace(run / "evaluation.json", json.dumps(evaluation | {"original": str(folder)}).encode())
    card(run, inputs)


def profile(folder: Path, inputs: Inputs) -> None:
    laaciq.profile(folder, texts=str(inputs.folder / "texts"), languages=["eng", "swa"], passages=2, device="cpu")


def evaluate(folder: Path, inputs: Inputs) -> None:
    """A model of strangers beside its original."""
    laaciq.evaluate(
        folder,
        against=str(inputs.folder / "model"),
        texts=str(inputs.folder / "texts"),
        served_bound=100.0,
        device="cpu",
    )


def resume(run: Path, inputs: Inputs) -> None:
    """The command that made the run, again."""
    laaciq.run(inputs.folder / "model", out=run, device="cpu", **inputs.run_options)


def measure_texts(texts: Path, inputs: Inputs) -> None:
    """Texts as a command reads them that measures on them."""
    laaciq.evaluate(
        inputs.folder / "checkpoint",
        against=str(inputs.folder / "model"),
        texts=str(texts),
        served_bound=100.0,
        device="cpu",
    )


def use_ratings(path: Path, inputs: Inputs) -> None:
    laaciq.ratings([path], key=inputs.folder / "rating/key.json")


def use_rating_key(path: Path, inputs: Inputs) -> None:
    laaciq.ratings([inputs.folder / "ratings.csv"], key=path / "key.json")


def use_continuations(run: Path, inputs: Inputs) -> None:
    laaciq.rating_sheet(run, out=run.parent / "rating")


def use_answers(logged: Path, inputs: Inputs) -> None:
    laaciq.task_results(inputs.folder / "original", logged)


def use_options(path: Path, inputs: Inputs) -> None:
    """As Python functions take them."""
    for verb, given in json.loads(path.read_text(encoding="utf-8")).items():
        if verb in VERBS and isinstance(given, dict):
            VERBS[verb].of(**{name: tuple(v) if isinstance(v, list) else v for name, v in given.items()})
