"""Model folders from strangers: what is not as it should be is named in one sentence, and nothing outside the folder is read."""

import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from laaciq.errors import BrokenModel
from laaciq.models import find_model, load, stream_tensors
from tests.tiny import save_tiny

INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    return save_tiny("llama", tmp_path_factory.mktemp("valid") / "model")


@pytest.fixture
def folder(valid, tmp_path):
    return shutil.copytree(valid, tmp_path / "model")


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_tensors(folder, change):
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def refused(folder, says):
    """By everything that reads a model."""
    with pytest.raises(BrokenModel, match=says):
        load(find_model(folder))


@pytest.mark.parametrize(
    "text", ["null", "[]", "3", '"llama"', "[" * 100_000, '{"a": NaN}', '{"vocab_size": 1, "vocab_size": 2}']
)
def test_config_is_one_sound_object(folder, text):
    (folder / "config.json").write_text(text)
    refused(folder, r"config\.json (holds|is not valid JSON|has)")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"vocab_size": "400"}, "vocab_size should be a valid integer"),
        ({"num_hidden_layers": -1}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**7}, "10000000 blocks"),
        ({"num_hidden_layers": 1}, r"has model\.layers\.1\."),
        ({"num_hidden_layers": 3}, "half-written"),
        ({"hidden_size": 64}, r"has shape \(400, 32\), .*\(400, 64\)"),
        ({"architectures": "LlamaForCausalLM"}, "architectures should be a valid array"),
        ({"model_type": []}, "model_type should be a valid string"),
        ({"transformers_weights": "../../weights.safetensors"}, "transformers_weights"),
        ({"quantization_config": []}, "quantization_config should be an object"),
        ({"quantization_config": {}}, "quantization_config of the method None"),
        ({"quantization_config": {"quant_method": "unheard-of"}}, "'unheard-of'"),
    ],
)
def test_config_must_be_that_of_the_weights(folder, changes, says):
    edit_config(folder, **changes)
    refused(folder, says)


@pytest.mark.parametrize(
    "settings",
    [
        {"quant_method": "gptq", "bits": 4, "group_size": 16},
        {"quant_method": "awq", "bits": 4, "group_size": 16},
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4}}},
        },
    ],
    ids=lambda settings: settings["quant_method"],
)
def test_a_quantization_that_the_weights_do_not_have(folder, settings):
    edit_config(folder, quantization_config=settings)
    refused(folder, "claims in config.json that its weights are quantized")


def test_a_checkpoint_of_ours_without_its_plan(folder):
    edit_config(folder, quantization_config={"quant_method": "laaciq"})
    refused(folder, "plan should be an object")


def test_a_pattern_that_takes_forever(folder):
    from laaciq.models.foreign.parts import matches

    with pytest.raises(BrokenModel, match="takes too long"):
        matches("(a|aa)+$", "a" * 60 + "!")
    with pytest.raises(BrokenModel, match="pattern"):
        matches("(", "a")


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8])
@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.0.mlp.up_proj.weight"])
def test_integers_are_no_weights(folder, name, dtype):
    edit_tensors(folder, lambda tensors: tensors.update({name: tensors[name].mul(100).to(dtype)}))
    refused(folder, rf"{name} as I\d+")


def test_a_bias_that_config_does_not_know(folder):
    edit_tensors(folder, lambda tensors: tensors.update({"model.layers.0.mlp.up_proj.bias": torch.zeros(64)}))
    refused(folder, r"has model\.layers\.0\.mlp\.up_proj\.bias")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "holds null"),
        ([], "holds a list"),
        ({}, "no weight_map"),
        ({"weight_map": {}}, "no weight_map"),
        ({"weight_map": ["a"]}, "no weight_map"),
        ({"weight_map": {"a": 3}}, "names 3 as a file"),
        ({"weight_map": {"a": 3, "b": WEIGHTS}}, "names 3 as a file"),
        ({"weight_map": {"a": "/etc/passwd"}}, "not in its folder"),
        ({"weight_map": {"a": "../../etc/passwd"}}, "not in its folder"),
        ({"weight_map": {"a": "/dev/zero"}}, "not in its folder"),
        ({"weight_map": {"a": "."}}, r"expected a \.safetensors file"),
        ({"weight_map": {"a": "config.json"}}, r"expected a \.safetensors file"),
        ({"weight_map": {"a": "other.safetensors"}}, "is missing"),
        ({"weight_map": {"not-there.weight": WEIGHTS}}, r"lacks not-there\.weight"),
    ],
)
def test_an_index_names_shards_of_its_folder(folder, content, says):
    (folder / INDEX).write_text(json.dumps(content))
    refused(folder, says)
    with pytest.raises(BrokenModel, match=says):
        list(stream_tensors(find_model(folder)))


@pytest.mark.parametrize("content", [None, {"weight_map": {"a": "/dev/zero"}}])
def test_the_fingerprint_reads_no_other_files(folder, content):
    (folder / INDEX).write_text(json.dumps(content))
    with pytest.raises(BrokenModel, match="index"):
        find_model(folder).fingerprint  # noqa: B018


def test_an_index_of_pickled_shards_names_files_of_its_folder(folder):
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {"a": "../../x.bin"}}))
    refused(folder, "not in its folder")


def test_a_whole_file_and_shards_of_another(folder):
    shutil.copy(folder / WEIGHTS, folder / "other.safetensors")
    (folder / INDEX).write_text(json.dumps({"weight_map": {"model.norm.weight": "other.safetensors"}}))
    refused(folder, "remove one of the two")


def test_a_tensor_in_two_shards(folder):
    shutil.copy(folder / WEIGHTS, folder / "a.safetensors")
    (folder / WEIGHTS).rename(folder / "b.safetensors")
    refused(folder, r"has lm_head\.weight, and so")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "generation_config.json", WEIGHTS])
@pytest.mark.parametrize("kind", ["pipe", "folder", "loop", "outside"])
def test_every_file_is_a_file_of_the_folder(folder, name, kind):
    path = folder / name
    content = path.read_bytes()
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        outside = folder.parent / name
        outside.write_bytes(content)
        path.symlink_to(path if kind == "loop" else outside)
    refused(folder, rf"{name} is a (named pipe|folder|symbolic link|link)")


def test_a_snapshot_of_the_hub_s_cache_loads(valid, tmp_path):
    snapshot, blobs = tmp_path / "models--a--b/snapshots/1", tmp_path / "models--a--b/blobs"
    shutil.copytree(valid, blobs)
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    assert load(find_model(snapshot)).vocabulary == 400


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("adapter_config.json", "an adapter for another model"),
        ("shard-00000-model-00001-of-00001.safetensors", "parts of several processes"),
    ],
)
def test_files_that_transformers_would_load_in_place_of_the_model(folder, file, says):
    (folder / file).write_text("{}")
    refused(folder, says)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
@pytest.mark.parametrize("content", [b"null", b"[]", b"{", b"\xff"])
def test_settings_beside_config(folder, name, content):
    (folder / name).write_bytes(content)
    refused(folder, name)


@pytest.mark.parametrize(
    ("entry", "name"), [("init_inputs", "/etc/passwd"), ("fast_tokenizer_files", "../other/tokenizer.4.0.json")]
)
def test_a_tokenizer_does_not_name_files(folder, entry, name):
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {entry: [name]}))
    refused(folder, entry)
