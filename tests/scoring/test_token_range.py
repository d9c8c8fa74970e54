"""Tokens that the embeddings lack are refused before the model runs."""

import json

import pytest

from laaciq.corpus import read_split
from laaciq.errors import BrokenModel
from laaciq.models import find_model, load
from laaciq.scoring.sequences import prepare_all
from tests.tiny import save_tiny


@pytest.mark.parametrize("token", [-3, 10**6])
def test_a_start_token_outside_the_vocabulary_is_refused(tmp_path, token):
    folder = save_tiny("mt5", tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"decoder_start_token_id": token}))
    with pytest.raises(BrokenModel, match=str(token)):
        prepare_all(load(find_model(folder), device="cpu"), read_split("builtin").test.select(["eng"]).at([0])["eng"])
