"""That the verbs take a model by name, leave nothing without `out`, and resume with it; what they find is tested in tests/studies."""

import json

import pytest

import laaciq
from laaciq.errors import BadOption
from tests.tiny import save_tiny

SHORT = {"languages": ["eng", "swa"], "served_bound": 100.0}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny("llama", tmp_path_factory.mktemp("model"))


def test_sweep(model, tmp_path):
    result = laaciq.sweep(model, bits=[8, 3], **SHORT)
    assert result.bits == (3, 8)
    again = laaciq.sweep(model, bits=[8, 3], out=tmp_path / "out", **SHORT)
    assert again == result
    assert "--bits 3,8" in json.loads((tmp_path / "out/run.json").read_text())["command"]
    with pytest.raises(BadOption, match="--bits is empty"):
        laaciq.sweep(model, bits=[], **SHORT)


def test_sensitivity(model, tmp_path):
    result = laaciq.sensitivity(model, part="test", out=tmp_path / "out", **SHORT)
    assert result.texts == "builtin, test part"
    assert "--part test" in json.loads((tmp_path / "out/run.json").read_text())["command"]
    with pytest.raises(BadOption, match="--part cannot be 'validation'"):
        laaciq.sensitivity(model, part="validation", **SHORT)


def test_gateway_and_calibration(model):
    assert laaciq.gateway(model, protect=1, **SHORT).protect == 1
    result = laaciq.mixture(model, calibration_passages=(1,), rounds=1, passages=2, **SHORT)
    assert result.recommendation.sentence
    with pytest.raises(BadOption, match="nonsense"):
        laaciq.mixture(model, nonsense=1, **SHORT)
