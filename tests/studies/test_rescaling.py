import pytest
import torch

from laaciq.errors import BadOption
from laaciq.models import find_model, load
from laaciq.studies.rescaling import FUNCTION_TOLERANCE, Rescalable, plant_outliers
from laaciq.studies.sensitivity import pooled_kurtosis
from tests.tiny import ARCHITECTURES, save_tiny

# What norms write is also the residual stream of these.
POST_NORM = {"bert", "xlm-roberta"}


def opened(architecture, folder, **config):
    return load(find_model(save_tiny(architecture, folder, **config)), device="cpu")


def kurtosis(model, block):
    return pooled_kurtosis([linear.matrix for linear in model.anatomy.linears if linear.block == block])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kurtosis_is_set_at_the_same_function_or_refused(architecture, tmp_path):
    model = opened(architecture, tmp_path)
    rescalable = Rescalable(model)
    last = max(rescalable.blocks)
    before = kurtosis(model, last)
    assert rescalable.blocks[last].kurtosis(1.0) == pytest.approx(before, abs=1e-9)
    powers = rescalable.powers({last: 40.0})
    if architecture in POST_NORM:
        with pytest.raises(BadOption, match="computes something else after this rescaling"):
            rescalable.drift(powers)
        return
    # The stated tolerance, for κ from the smallest possible to a hundred times a Gaussian's fourth moment.
    assert rescalable.drift(powers) <= FUNCTION_TOLERANCE
    assert rescalable.drift(rescalable.equalised([last])) <= FUNCTION_TOLERANCE
    assert kurtosis(model, last) == before
    plant_outliers(model, [last], kurtosis=40.0)
    # As in float32, in which weights are stored.
    assert kurtosis(model, last) == pytest.approx(40.0, rel=1e-4)
    lowest = rescalable.blocks[last].kurtosis(rescalable.equalised([last])[last])
    assert lowest <= before


def test_what_cannot_be_rescaled_is_refused_and_left_alone(tmp_path):
    model = opened("llama", tmp_path / "llama")
    kept = {name: p.clone() for name, p in model.module.named_parameters()}
    for blocks, value, message in (([1], 1e5, "give a κ from"), ([7], 10.0, "has no block 7: give 0 to 1")):
        with pytest.raises(BadOption, match=message):
            plant_outliers(model, blocks, kurtosis=value)
    post_norm = opened("bert", tmp_path / "bert")
    kept_there = {name: p.clone() for name, p in post_norm.module.named_parameters()}
    with pytest.raises(BadOption, match="computes something else"):
        plant_outliers(post_norm, [1], kurtosis=40.0)
    for before, changed in ((kept, model), (kept_there, post_norm)):
        for name, p in changed.module.named_parameters():
            assert torch.equal(p, before[name])


def test_in_16_bits_the_remedy_is_float32(tmp_path):
    """What else reads the norms cannot be told from what rounding does. Gemma's gains, stored as 1 + w, lose digits where they are small."""
    model = opened("bert", tmp_path)
    model.module.bfloat16()
    rescalable = Rescalable(model)
    with pytest.raises(BadOption, match="too coarse in bfloat16; try --dtype float32"):
        rescalable.drift(rescalable.powers({max(rescalable.blocks): 40.0}))
