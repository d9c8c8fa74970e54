"""A configuration that loads and does not fit its weights is one sentence, before or while the model runs."""

import json

import pytest

from laaciq.corpus import read_split
from laaciq.errors import BrokenModel
from laaciq.models import find_model, load
from laaciq.options import OUTLIER_KURTOSIS, MeasureOptions
from laaciq.profiling.profile import profile_model
from laaciq.scoring.likelihood import nll_by_passage
from laaciq.scoring.sequences import prepare_all
from tests.tiny import save_tiny

TEXTS = read_split("builtin").test.select(["eng"]).at([0, 1])


def changed_model(folder, name, **changes):
    save_tiny(name, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return load(find_model(folder), device="cpu")


@pytest.mark.parametrize("token", [-3, 10**6])
def test_a_start_token_outside_the_vocabulary_is_refused(tmp_path, token):
    model = changed_model(tmp_path / "model", "mt5", decoder_start_token_id=token)
    with pytest.raises(BrokenModel, match=str(token)):
        prepare_all(model, TEXTS["eng"])


@pytest.mark.parametrize("distance", [3, -(2**63)])
def test_what_a_models_code_raises_names_the_model(tmp_path, distance):
    model = changed_model(tmp_path / "model", "mt5", relative_attention_max_distance=distance)
    with pytest.raises(BrokenModel, match=r"transformers cannot run .*model \((IndexError|ValueError)"):
        nll_by_passage(model, prepare_all(model, TEXTS["eng"]))


def test_positions_that_overflow_are_refused(tmp_path):
    positions = {"rope_theta": 1e-300, "rope_type": "default"}
    model = changed_model(tmp_path / "model", "llama", rope_parameters=positions)
    with pytest.raises(BrokenModel, match="NaN or infinite"):
        profile_model(model, TEXTS, MeasureOptions(), outlier_kurtosis=OUTLIER_KURTOSIS)
