"""A command that is interrupted in the middle of rounding or tuning goes on from the last finished block or epoch."""

import pytest
from safetensors.torch import load_file

import laaciq
from laaciq.quantization import model as rounding
from laaciq.quantization import stored_layers, tuning, tuning_state
from tests.short_texts import write_short_texts
from tests.tiny import save_tiny

OPTIONS = {"method": "gptq", "bits": 3, "group_size": 16, "tune": 2, "served_bound": 100, "device": "cpu"}
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A model of three blocks, texts, and its checkpoint."""
    folder = tmp_path_factory.mktemp("resuming")
    model = save_tiny("llama", folder / "model", num_hidden_layers=3)
    texts = write_short_texts(folder / "texts", ("eng", "swa"))
    laaciq.quantize(model, texts=texts, out=folder / "whole", **OPTIONS)
    return model, texts, load_file(folder / "whole" / WEIGHTS)


def interrupted_after(monkeypatch, owner, name, times):
    """The method ends the process, as Ctrl-C would, after so many calls."""
    real, calls = getattr(owner, name), []

    def counted(*arguments, **options):
        result = real(*arguments, **options)
        calls.append(arguments)
        if len(calls) == times:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(owner, name, counted)


def counting(monkeypatch, module, name):
    real, calls = getattr(module, name), []

    def counted(*arguments, **options):
        calls.append(arguments)
        return real(*arguments, **options)

    monkeypatch.setattr(module, name, counted)
    return calls


def resumed(inputs, out, monkeypatch):
    """How many blocks are rounded and how many batches learned when the same command is given again. The checkpoint is that of an undisturbed
    one, and nothing else is left.
    """
    model, texts, expected = inputs
    with monkeypatch.context() as patch:
        blocks, batches = counting(patch, rounding, "_round_block"), counting(patch, tuning, "_descend")
        laaciq.quantize(model, texts=texts, out=out, **OPTIONS)
    weights = load_file(out / WEIGHTS)
    assert weights.keys() == expected.keys()
    assert all(weights[name].equal(tensor) for name, tensor in expected.items())
    assert not list(out.parent.rglob("layers.safetensors"))
    assert not list(out.parent.rglob("state.safetensors"))
    return len(blocks), len(batches)


def interrupt(inputs, out, monkeypatch, owner, name, times):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupted_after(patch, owner, name, times)
        laaciq.quantize(inputs[0], texts=inputs[1], out=out, **OPTIONS)


def test_rounding_goes_on_with_the_next_block(inputs, tmp_path, monkeypatch):
    out = tmp_path / "out"
    interrupt(inputs, out, monkeypatch, stored_layers.RoundedBlocks, "keep", 2)
    assert resumed(inputs, out, monkeypatch)[0] == 1


def test_tuning_goes_on_with_the_next_epoch(inputs, tmp_path, monkeypatch):
    _, whole = resumed(inputs, tmp_path / "undisturbed", monkeypatch)
    out = tmp_path / "out"
    # The state before the first epoch, and that after it.
    interrupt(inputs, out, monkeypatch, tuning_state.KeptEpochs, "keep", 2)
    blocks, batches = resumed(inputs, out, monkeypatch)
    assert blocks == 0
    assert 0 < batches == whole / 2
