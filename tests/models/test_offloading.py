import pytest
import torch

from laaciq.models import find_model, load, offloading
from laaciq.models.offloading import next_block, place_blocks, tensor_bytes
from tests.tiny import save_tiny


def loaded(tmp_path, most_bytes=1):
    return load(find_model(save_tiny("llama", tmp_path, num_hidden_layers=4)), device="cpu", most_bytes=most_bytes)


def weight(model, block):
    return next(linear for linear in model.anatomy.linears if linear.block == block).matrix


def test_changes_to_a_block_that_is_present_are_lost_at_the_end(tmp_path):
    model = loaded(tmp_path)
    before = weight(model, 1).clone()
    with model.present(1):
        with torch.no_grad():
            weight(model, 1).zero_()
        # It stays as long as anybody needs it.
        with model.present(1):
            assert not weight(model, 1).any()
        assert not weight(model, 1).any()
    assert torch.equal(weight(model, 1), before)


def test_as_many_blocks_stay_as_fit_and_the_first_ones(tmp_path):
    whole = load(find_model(save_tiny("llama", tmp_path / "whole", num_hidden_layers=4)), device="cpu")
    block = tensor_bytes(whole.blocks[0])
    # Room for everything but one block; and two that come and go need room too.
    model = loaded(tmp_path / "model", tensor_bytes(whole.module) - block)
    offloaded = [index for index, part in enumerate(model.blocks) if "forward" in part.__dict__]
    assert offloaded == [1, 2, 3]
    assert loaded(tmp_path / "all", tensor_bytes(whole.module)).offloaded is None


def test_weights_stay_in_their_files_until_they_are_needed(tmp_path):
    """In the type in which they are stored, while blocks compute in float32."""
    path = save_tiny("llama", tmp_path, dtype=torch.bfloat16)
    model = load(find_model(path), device="cpu", most_bytes=1)
    assert weight(model, 0).dtype == torch.bfloat16
    with model.present(0):
        assert weight(model, 0).dtype == model.dtype == torch.float32


def test_a_copy_without_block_weights_leaves_the_original_as_it_is(tmp_path):
    model = loaded(tmp_path)
    hollow = model.without_block_weights()
    assert all(parameter.is_meta for block in hollow.blocks for parameter in block.parameters())
    assert not any(p.is_meta for name, p in hollow.module.named_parameters() if ".layers." not in name)
    ids = torch.arange(5, 25)[None]
    with torch.inference_mode():
        logits = model.module(ids).logits
    assert torch.isfinite(logits).all()


@pytest.mark.parametrize("first", [0, 3])
def test_the_next_block_is_known_beforehand(first):
    """Forwards, again from the first one, and backwards from the last one, which runs again there; some blocks may be on the device."""
    blocks = list(range(first, 8))
    passes = [*blocks, *blocks, *reversed(blocks), *blocks]
    guesses = [next_block(blocks, last, index) for last, index in zip([-1, *passes], passes, strict=False)]
    # At the end of a pass it cannot be known whether the next one goes on or turns.
    wrong = [place for place, guess in enumerate(guesses[:-1]) if guess != passes[place + 1]]
    assert wrong == [2 * len(blocks) - 1, 3 * len(blocks) - 1]
    assert next_block([5], -1, 5) is None


def test_as_many_blocks_are_pinned_as_fit(tmp_path, monkeypatch):
    model = load(find_model(save_tiny("llama", tmp_path, num_hidden_layers=4)), device="cpu")
    pinned = []
    monkeypatch.setattr(offloading, "_pin", lambda tensors: pinned.extend(map(id, tensors)))
    size = tensor_bytes(model.blocks[0])
    place_blocks(model.module, model.blocks, model.device, most_bytes=1, pinned_bytes=int(2.5 * size))
    by_block = [{id(parameter) for parameter in block.parameters()} & set(pinned) for block in model.blocks]
    assert [bool(found) for found in by_block] == [True, True, False, False]
