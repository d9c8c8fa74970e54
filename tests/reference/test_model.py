import json

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from laaciq import reference
from laaciq.corpus import language


def test_it_is_a_small_standard_llama():
    model = AutoModelForCausalLM.from_pretrained(reference.path())
    config = model.config
    assert config.model_type == "llama"
    assert config.num_hidden_layers == 12
    assert config.hidden_size % 256 == config.intermediate_size % 256 == 0
    assert config.tie_word_embeddings
    assert model.dtype == torch.bfloat16
    weights = sum(path.stat().st_size for path in reference.path().glob("*.safetensors"))
    assert weights <= 32 * 2**20


def test_languages_and_exposure_meet_the_promise():
    table = json.loads((reference.path() / "languages.json").read_text())
    assert len(table) >= 24
    assert len({language(row["language"]).script for row in table}) >= 10
    assert sum(row["training_bytes"] < 1_000_000 for row in table) >= 6
    assert max(row["passes"] for row in table) <= 10
    assert not {"hau", "amh"} & {row["language"] for row in table}
    assert reference.exposure()["eng"] > reference.exposure()["yor"] > 0


def test_tokens_round_trip_in_every_script():
    tokenizer = AutoTokenizer.from_pretrained(reference.path())
    for text in ("Hello, world!", "नमस्ते दुनिया", "สวัสดี", "გამარჯობა", "👩‍🌾 ok", "ጤና"):
        ids = tokenizer(text)["input_ids"]
        assert ids[0] == tokenizer.bos_token_id
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
