"""A stored result is valid only for what it was computed with: versions, kind of device, type of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from laaciq.engine import environment
from laaciq.engine.run_folder import RunFolder, read_marker
from laaciq.options import MeasureOptions, WeightOptions
from laaciq.planning.decision import decision_key
from laaciq.planning.planner import Planner
from laaciq.quantization.calibration import Calibration
from laaciq.strict import StrictModel
from laaciq.trials import opened_model as sessions
from laaciq.trials.session import Session
from tests.tiny import save_tiny


class Result(StrictModel):
    value: int = 0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny("llama", tmp_path_factory.mktemp("model"))


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Sets the version of a package that seems to be installed."""
    real = environment.metadata.version
    changed: dict[str, str] = {}
    monkeypatch.setattr(environment.metadata, "version", lambda name: changed.get(name) or real(name))

    def change(name: str, version: str) -> None:
        changed[name] = version
        environment.versions.cache_clear()

    yield change
    monkeypatch.undo()
    environment.versions.cache_clear()


def keys(model: Path, out: Path | None = None) -> dict[str, str]:
    """Of every kind of result, without a model in memory."""
    session = Session.open(model, "builtin", MeasureOptions(), languages=["eng", "swa"], out=out)
    split = session.split
    calibration = Calibration(None, split.calibration, session.options, split.validation)
    planner = Planner(session, calibration, split.validation, WeightOptions.of(method="planned", budget=4.0))
    return {
        "measurement": session.key(split.test["eng"], "candidate"),
        "profile": session.profile_key(split.calibration),
        "plan from texts": decision_key(session, WeightOptions.of(method="gptq")),
        "plan from weights": decision_key(session, WeightOptions.of(method="rtn")),
        "planning": planner._text_key,
    }


def assert_invalid(model: Path, before: dict[str, str], tmp_path: Path) -> None:
    after = keys(model)
    assert after.keys() == before.keys()
    assert [name for name in before if before[name] == after[name]] == []
    store = RunFolder(tmp_path / "run", description={})
    for name, key in before.items():
        store.keep(f"{name}.json", Result(), key)
        assert store.valid(f"{name}.json", key)
        assert not store.valid(f"{name}.json", after[name])


def test_the_same_environment_gives_the_same_keys(model: Path) -> None:
    assert keys(model) == keys(model)


@pytest.mark.parametrize("name", ["torch", "transformers", "tokenizers", "numpy", "scipy"])
def test_another_version_makes_results_invalid(model: Path, versions, tmp_path: Path, name: str) -> None:
    before = keys(model)
    versions(name, "0.0.1")
    assert_invalid(model, before, tmp_path)


def test_another_version_of_ours_makes_results_invalid(model: Path, monkeypatch, tmp_path: Path) -> None:
    before = keys(model)
    monkeypatch.setattr("laaciq.engine.store.__version__", "0.0.1")
    assert_invalid(model, before, tmp_path)


def test_another_kind_of_device_makes_results_invalid(model: Path, monkeypatch, tmp_path: Path) -> None:
    before = keys(model)
    monkeypatch.setattr(sessions, "device_kind", lambda place: "NVIDIA X")
    assert_invalid(model, before, tmp_path)


def test_another_type_of_numbers_makes_results_invalid(model: Path, monkeypatch, tmp_path: Path) -> None:
    before = keys(model)
    monkeypatch.setattr(sessions, "default_dtype", lambda place: torch.bfloat16)
    assert_invalid(model, before, tmp_path)


def test_run_json_names_what_results_were_computed_with(model: Path, versions, tmp_path: Path) -> None:
    versions("torch", "9.9")
    session = Session.open(
        model, "builtin", MeasureOptions(), out=tmp_path / "run", description={"command": "laaciq run"}
    )
    session.store.write("note.txt", "x")
    session.store.finish()
    session.store.close()
    noted = (read_marker(tmp_path / "run") or {})["computed_with"]
    assert noted == session.computed_with
    assert noted["torch"] == "9.9"
    assert noted["device"].startswith("cpu, ") and noted["dtype"] == "float32"
    # It is no other command: what is invalid is computed again.
    versions("torch", "9.10")
    again = Session.open(
        model, "builtin", MeasureOptions(), out=tmp_path / "run", description={"command": "laaciq run"}
    )
    again.store.close()
