"""`--dtype bfloat16` on a CPU: the whole chain runs, losses move by noise alone, and nothing is mistaken for a result in float32."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import laaciq
from laaciq.engine.bfloat16 import SAFE_BFLOAT16, keep_onednn_safe
from laaciq.engine.threads import one_thread
from laaciq.engine.work import measure_speed
from laaciq.options import MeasureOptions
from laaciq.trials.session import Session
from tests.short_texts import write_short_texts
from tests.tiny import save_tiny

LANGUAGES = ["eng", "swa", "hin"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_short_texts(tmp_path_factory.mktemp("texts"), LANGUAGES, passages=16)


def test_losses_move_by_noise_alone():
    """A number in bfloat16 has 8 bits: a logit of 20 is off by up to 0.06. Over some 300 tokens that averages out to less than a hundredth."""
    sweeps = [
        laaciq.sweep(bits=[3], languages=LANGUAGES, passages=6, device="cpu", dtype=dtype)
        for dtype in ("float32", "bfloat16")
    ]
    exact, rounded = (np.array([by_bits[3].value for by_bits in sweep.degradation.values()]) for sweep in sweeps)
    assert (exact > 0.1).all()
    assert not np.array_equal(exact, rounded)
    assert rounded == pytest.approx(exact, abs=0.03)


def test_the_whole_chain_runs(tmp_path, texts):
    model = save_tiny("llama", tmp_path / "model")
    options = {"texts": texts, "passages": 3, "served_bound": 100, "device": "cpu", "dtype": "bfloat16"}
    result = laaciq.run(model, out=tmp_path / "run", budget=4.0, tune=1, **options)
    assert json.loads((tmp_path / "run/run.json").read_text())["computed_with"]["dtype"] == "bfloat16"
    again = laaciq.evaluate(tmp_path / "run/checkpoint", against=model, **options)
    # A checkpoint's layers multiply codes, not weights that are rounded to bfloat16 first.
    losses = [[row.quantized.nll_per_token for row in rows] for rows in (again.languages, result.evaluation.languages)]
    assert losses[0] == pytest.approx(losses[1], rel=0.01)


def test_a_result_in_another_type_is_another_result(tmp_path, texts):
    model, keys = save_tiny("llama", tmp_path / "model"), []
    for dtype in ("auto", "float32", "bfloat16"):
        session = Session.open(model, texts, MeasureOptions(dtype=dtype), device="cpu")
        keys.append(session.key(session.split.test["eng"], "candidate"))
        assert session.original.dtype == (torch.bfloat16 if dtype == "bfloat16" else torch.float32)
        assert session.costs.number_bytes == session.original.dtype.itemsize
    assert keys[2] not in keys[:2]


def test_any_number_of_threads(tmp_path, texts):
    session = Session.open(
        save_tiny("llama", tmp_path / "model", hidden_size=512), texts, MeasureOptions(dtype="bfloat16"), device="cpu"
    )
    prepared = session.prepared(session.split.test["hin"])
    both = laaciq.trials.measurement.passage_losses(session.original, prepared)
    with one_thread():
        assert laaciq.trials.measurement.passage_losses(session.original, prepared) == both


def test_what_the_user_has_set_for_onednn_stays(monkeypatch):
    ((name, safe),) = SAFE_BFLOAT16.items()
    for before, after in ((None, safe), ("AVX2", "AVX2")):
        monkeypatch.delenv(name, raising=False)
        if before is not None:
            monkeypatch.setenv(name, before)
        keep_onednn_safe()
        assert os.environ[name] == after


def test_speed_is_measured_safely(monkeypatch):
    """It is measured before a model is loaded, and oneDNN reads its settings once."""
    ((name, safe),) = SAFE_BFLOAT16.items()
    monkeypatch.delenv(name, raising=False)
    assert measure_speed(torch.device("cpu"), torch.bfloat16, 32, 32).products > 0
    assert os.environ[name] == safe


def test_the_process_survives(tmp_path, texts):
    """Without settings in its environment, as a user starts it."""
    model = save_tiny("llama", tmp_path / "model")
    program = f"import laaciq; laaciq.sweep({str(model)!r}, texts={str(texts)!r}, bits=[4], served_bound=100, device='cpu', dtype='bfloat16')"
    clean = {name: value for name, value in os.environ.items() if name not in SAFE_BFLOAT16}
    subprocess.run([sys.executable, "-c", program], env=clean, check=True, timeout=300)
