"""Checkpoints of ours that were damaged, or edited by strangers: refused whichever way they are read."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import laaciq
from laaciq.errors import BrokenModel
from laaciq.models import find_model, load
from laaciq.quantization.checkpoint import apply_checkpoint
from laaciq.quantization.dequantized import load_dequantized
from laaciq.trials.quantized_copy import copy_of
from tests.tiny import save_tiny

DOWN = "model.layers.0.mlp.down_proj"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model and a checkpoint of it."""
    folder = tmp_path_factory.mktemp("made")
    save_tiny("llama", folder / "model")
    laaciq.quantize(folder / "model", out=folder / "checkpoint", method="rtn", bits=4, group_size=32)
    laaciq.quantize(folder / "model", out=folder / "keeping", method="rtn", bits=4, group_size=32, keep=1.0, rank=1)
    return folder


@pytest.fixture(scope="module")
def original(made):
    return load(find_model(made / "model"))


@pytest.fixture
def readers(original, tmp_path):
    """All that read a checkpoint."""
    return {
        "load": lambda folder: load(find_model(folder)),
        "dequantize": lambda folder: load_dequantized(find_model(folder)),
        "apply": lambda folder: apply_checkpoint(copy_of(original), folder),
        "gguf": lambda folder: laaciq.export(folder, format="gguf", out=tmp_path / "gguf"),
        "compressed-tensors": lambda folder: laaciq.export(folder, format="compressed-tensors", out=tmp_path / "ct"),
    }


def damaged(made, tmp_path, change, name="checkpoint"):
    folder = shutil.copytree(made / name, tmp_path / name)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def retyped(name, dtype):
    return lambda tensors: tensors.update({name: tensors[name].to(dtype)})


def set_first(name, value):
    return lambda tensors: tensors[name].view(-1)[0:1].fill_(value)


@pytest.mark.parametrize("reader", ["load", "dequantize", "apply", "gguf", "compressed-tensors"])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda tensors: tensors.pop("model.norm.weight"), r"model\.norm\.weight"),
        (set_first("model.norm.weight", torch.nan), r"model\.norm\.weight"),
        (set_first(f"{DOWN}.scales", torch.inf), "NaN or infinite"),
        (retyped("model.norm.weight", torch.int64), r"model\.norm\.weight"),
        (retyped(f"{DOWN}.codes", torch.float32), r"down_proj.*(U8|uint8)"),
        (retyped(f"{DOWN}.codes", torch.int64), r"down_proj.*(U8|uint8)"),
        (retyped(f"{DOWN}.scales", torch.float64), r"down_proj.*(F16|float16)"),
        (lambda tensors: tensors.update({"model.norm.weight": torch.ones(5)}), r"model\.norm\.weight has shape \(5,\)"),
        (lambda tensors: tensors.pop(f"{DOWN}.scales"), r"down_proj.*scales|half-written"),
    ],
    ids=[
        "no norm",
        "NaN norm",
        "infinite scale",
        "integer norm",
        "float codes",
        "long codes",
        "wide scales",
        "short norm",
        "no scales",
    ],
)
def test_what_a_checkpoint_must_hold(made, readers, tmp_path, reader, change, says):
    folder = damaged(made, tmp_path, change)
    with pytest.raises(BrokenModel, match=says):
        readers[reader](folder)
    assert not (tmp_path / "gguf").exists()
    assert not (tmp_path / "ct").exists()


@pytest.mark.parametrize("reader", ["load", "dequantize", "apply"])
@pytest.mark.parametrize(("part", "value"), [("kept_columns", 60_000), ("kept_counts", -1), ("kept_counts", 1000)])
def test_kept_weights_lie_within_their_matrix(made, readers, tmp_path, reader, part, value):
    def change(tensors):
        tensors[f"{DOWN}.{part}"][0] = value

    with pytest.raises(BrokenModel, match="outside"):
        readers[reader](damaged(made, tmp_path, change, "keeping"))


def edit_section(folder, change):
    config = json.loads((folder / "config.json").read_text())
    change(config["quantization_config"])
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda section: section.pop("plan"), r"plan (is missing|should be)"),
        (lambda section: section.update(plan=[]), "plan should be an object"),
        (lambda section: section["plan"].update(tensors="all"), r"plan\.tensors should be"),
        (lambda section: section["plan"]["tensors"][0].update(bits=8), "codes|not the plan"),
        (lambda section: section.pop("brain_floats"), "brain_floats"),
        (lambda section: section.update(brain_floats=3), "brain_floats should be"),
        (lambda section: section.update(brain_floats=[f"{DOWN}.scales"]), r"scales.*BF16|not the plan|BF16"),
    ],
)
@pytest.mark.parametrize("reader", ["load", "apply", "gguf"])
def test_the_section_in_config(made, readers, tmp_path, change, says, reader):
    folder = shutil.copytree(made / "checkpoint", tmp_path / "checkpoint")
    edit_section(folder, change)
    with pytest.raises(BrokenModel, match=says):
        readers[reader](folder)


def test_two_plans_that_differ(made, readers, tmp_path):
    folder = shutil.copytree(made / "checkpoint", tmp_path / "checkpoint")
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps(plan | {"method": "another"}))
    with pytest.raises(BrokenModel, match=r"plan\.json .*config\.json"):
        readers["gguf"](folder)
