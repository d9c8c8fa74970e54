import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from laaciq.errors import BrokenModel
from laaciq.models import find_model, load, stream_tensors
from laaciq.models.loading import skeleton
from tests.tiny import save_tiny


def test_streaming_gives_every_tensor_of_a_sharded_checkpoint():
    folder = find_model("reference")
    assert len(folder.weight_files) > 1
    streamed = {name: tensor.shape for name, tensor in stream_tensors(folder)}
    loaded = {name: p.shape for name, p in load(folder).module.named_parameters()}
    assert {name: streamed[name] for name in loaded} == loaded


def test_cpu_computes_in_float32_whatever_is_stored(tmp_path):
    model = load(find_model(save_tiny("llama", tmp_path, dtype=torch.bfloat16)), device="cpu")
    assert model.module.dtype == torch.float32


@pytest.mark.parametrize("name", ["/nowhere/at/all", "./nowhere"])
def test_a_missing_folder(name):
    with pytest.raises(BrokenModel, match="no model at"):
        find_model(name)


def test_a_hub_name_that_cannot_be_reached():
    with pytest.raises(BrokenModel, match="the download from the hub failed"):
        find_model("nobody/nothing-here")


def test_a_folder_without_config(tmp_path):
    with pytest.raises(BrokenModel, match=r"no config\.json"):
        find_model(tmp_path)


def test_a_folder_without_weights(tmp_path):
    save_tiny("llama", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(BrokenModel, match="has no weights"):
        load(find_model(tmp_path))


def test_a_missing_shard(tmp_path):
    save_tiny("llama", tmp_path)
    index = {"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BrokenModel, match="half-written"):
        load(find_model(tmp_path))


@pytest.mark.parametrize("kept", [10, 2000])
def test_a_truncated_file(tmp_path, kept):
    path = save_tiny("llama", tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(BrokenModel):
        load(find_model(tmp_path))
    with pytest.raises(BrokenModel, match="broken or cut short"):
        list(stream_tensors(find_model(tmp_path)))


def test_a_half_written_config(tmp_path):
    path = save_tiny("llama", tmp_path) / "config.json"
    path.write_text(path.read_text()[:40])
    with pytest.raises(BrokenModel, match="not valid JSON"):
        find_model(tmp_path)


def edit(path, change):
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def test_missing_tensors_are_not_filled_with_random_ones(tmp_path):
    save_tiny("llama", tmp_path)
    edit(tmp_path / "model.safetensors", lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(BrokenModel, match=r"missing, model\.layers\.1\.mlp\.up_proj\.weight"):
        load(find_model(tmp_path))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_infinite_weights_are_named(tmp_path, value):
    save_tiny("llama", tmp_path)

    def spoil(tensors):
        tensors["model.layers.0.mlp.up_proj.weight"][3, 4] = value

    edit(tmp_path / "model.safetensors", spoil)
    with pytest.raises(BrokenModel, match=r"NaN or infinite weights in model\.layers\.0\.mlp\.up_proj"):
        load(find_model(tmp_path))


def test_the_fingerprint_follows_the_weights(tmp_path):
    first = find_model(save_tiny("llama", tmp_path / "a")).fingerprint
    assert find_model(save_tiny("llama", tmp_path / "b")).fingerprint == first
    assert find_model(save_tiny("llama", tmp_path / "c", seed=1)).fingerprint != first


def test_a_model_that_was_trained_with_another_softmax_is_refused(tmp_path):
    folder = save_tiny("llama", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"attention_softmax": "softmax0"}))
    for read in (load, skeleton):
        with pytest.raises(BrokenModel, match=r"trained with attention_softmax = 'softmax0'.*measure_variants"):
            read(find_model(folder))
