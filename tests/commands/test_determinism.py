"""The same command gives the same plan and the same figures, with any number of threads and any order of hashes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import laaciq
from laaciq.engine.threads import one_thread
from laaciq.models import find_model, load
from laaciq.options import MeasureOptions
from laaciq.planning.decision import Decision
from laaciq.scoring import likelihood
from laaciq.trials import session as sessions
from laaciq.trials.candidate import LoadedModel
from laaciq.trials.session import Session
from tests.short_texts import write_short_texts
from tests.tiny import save_tiny

FEW = ("eng", "swa")
OPTIONS = {"budget": 4.25, "served_bound": 100.0}
RESULTS = ("evaluation.json", "baseline/evaluation.json", "plans.json", "profile.json", "report.md", "run.json")
PROGRAM = """
import json, sys, torch, laaciq
model, texts, out, options = sys.argv[1:]
laaciq.run(model, texts=texts, out=out, **json.loads(options))
print(torch.get_num_threads())
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("place")
    save_tiny("llama", place / "model")
    # LAPACK splits matrices of this size between threads.
    save_tiny("llama", place / "wide", hidden_size=512, intermediate_size=64, num_hidden_layers=1)
    write_short_texts(place / "texts", FEW, passages=10)
    return place


def run(place: Path, model: str, out: str) -> Path:
    with one_thread():
        laaciq.run(place / model, texts=str(place / "texts"), out=place / out, **OPTIONS)
    return place / out


@pytest.fixture(scope="module")
def wide(place: Path) -> Path:
    return run(place, "wide", "wide-in-one-thread")


def test_any_number_of_threads(place: Path, wide: Path) -> None:
    """Equal to the last bit, in another process with two threads."""
    # Threads that wait must not take the time of the tests beside.
    settings = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONHASHSEED": "2"}
    words = [sys.executable, "-c", PROGRAM, place / "wide", place / "texts", place / "in-two", json.dumps(OPTIONS)]
    child = subprocess.run(words, check=True, env=os.environ | settings, capture_output=True, text=True)
    assert child.stdout.endswith("2\n")
    for name in (*RESULTS, "checkpoint/model.safetensors"):
        assert (place / "in-two" / name).read_bytes() == (wide / name).read_bytes(), name


def test_batches_of_another_size(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same plan and the same codes. Where sums end in other digits, figures agree to four of them."""
    usual = run(place, "model", "usual")
    monkeypatch.setattr(likelihood, "LOGITS_BYTES", likelihood.LOGITS_BYTES // 1000)
    assert likelihood.batch_tokens(load(find_model(place / "model"))) < 100  # two passages at most
    small = run(place, "model", "small")
    plans = [Decision.model_validate_json((out / "plans.json").read_text()).plans.first for out in (usual, small)]
    assert plans[0].tensors == plans[1].tensors
    assert plans[0].weights == pytest.approx(plans[1].weights, rel=1e-5)
    codes = [read_codes(out / "checkpoint/model.safetensors") for out in (usual, small)]
    assert codes[0].keys() == codes[1].keys() != set()
    assert all((codes[0][name] == codes[1][name]).all() for name in codes[0])
    figures = [numbers(json.loads((out / "evaluation.json").read_text())) for out in (usual, small)]
    assert figures[0] == pytest.approx(figures[1], rel=1e-4, abs=1e-6)


def test_batches_depend_on_the_model_and_the_kind_of_device_alone(place: Path) -> None:
    """Not on threads or free memory: the size of batches is no option, and the same command always makes the same ones."""
    model = load(find_model(place / "model"))
    sizes = set()
    before = torch.get_num_threads()
    for threads in (1, 2, 4):
        torch.set_num_threads(threads)
        sizes.add(likelihood.batch_tokens(model))
    torch.set_num_threads(before)
    assert sizes == {likelihood.LOGITS_BYTES // (4 * model.vocabulary)}


def test_languages_that_are_pooled_are_measured_together_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a killed process had kept: in other batches the others would differ in their last digits."""
    options = MeasureOptions(served_bound=100.0)
    session = Session.open(place / "model", place / "texts", options, out=place / "pooled", description={})
    candidate = LoadedModel("same", "key", session.original)
    test = session.split.test
    first = session.measure_pooled(candidate, test, part="validation")
    (place / "pooled/trials/same/validation/swa.json").unlink()
    measured = []
    real = sessions.measure_pooled

    def recorded(original, model, passages, *others, **more):
        measured.append([part.language.code for part in passages])
        return real(original, model, passages, *others, **more)

    monkeypatch.setattr(sessions, "measure_pooled", recorded)
    assert session.measure_pooled(candidate, test, part="validation") == first
    assert measured == [test.languages]


def read_codes(path: Path) -> dict:
    with safe_open(path, framework="np") as file:
        return {name: file.get_tensor(name) for name in list(file.keys()) if name.endswith("codes")}


def numbers(content: object) -> list[float]:
    if isinstance(content, dict | list):
        return [
            number for part in (content.values() if isinstance(content, dict) else content) for number in numbers(part)
        ]
    return [content] if isinstance(content, float) else []


def test_reports_name_what_made_them(wide: Path) -> None:
    noted = json.loads((wide / "run.json").read_text())["computed_with"]
    for report in ("report.md", "report.html"):
        text = (wide / report).read_text().replace("\\_", "_")
        assert (
            f"Computed with laaciq {laaciq.__version__}, torch {noted['torch']}, transformers {noted['transformers']}"
            in text
        )
        assert f"; in float32 on {noted['device']}." in text
