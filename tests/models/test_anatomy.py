import pytest
import torch
from torch import nn

from laaciq.errors import BrokenModel
from laaciq.models import dissect, find_model, load
from tests.tiny import ARCHITECTURES, KIND, save_tiny

# Linear layers of a block, counted by hand from the architectures' papers; mT5 differs between encoder and decoder.
LINEARS_PER_BLOCK = {"gpt2": 4, "gpt_neox": 4, "bloom": 4, "opt": 6, "xglm": 6, "bert": 6, "xlm-roberta": 6}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_blocks_and_linear_layers_are_found(architecture, tmp_path):
    model = load(find_model(save_tiny(architecture, tmp_path)))
    anatomy = model.anatomy
    assert model.kind == KIND[architecture]
    if architecture == "mt5":
        assert len(anatomy.block_names) == 4
        assert len(anatomy.linears) == 2 * 7 + 2 * 11
    else:
        assert len(anatomy.block_names) == 2
        assert len(anatomy.linears) == 2 * LINEARS_PER_BLOCK.get(architecture, 7)
    assert {linear.block for linear in anatomy.linears} == set(range(len(anatomy.block_names)))
    names = {name for name, _ in model.module.named_parameters()}
    assert {linear.name for linear in anatomy.linears} <= names


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_components_are_told_apart(architecture, tmp_path):
    """Two or three linear layers of each block are the feed-forward part, all others attention."""
    anatomy = load(find_model(save_tiny(architecture, tmp_path))).anatomy
    for block in range(len(anatomy.block_names)):
        own = [linear.component for linear in anatomy.linears if linear.block == block]
        assert own.count("feed-forward") == (2 if architecture in LINEARS_PER_BLOCK else 3)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tied_embeddings_are_counted_once(architecture, tmp_path):
    model = load(find_model(save_tiny(architecture, tmp_path)))
    distinct = {p.data_ptr(): p.numel() for p in model.module.parameters()}
    assert model.anatomy.parameter_count() == sum(distinct.values())
    tied = model.module.get_input_embeddings().weight is model.module.get_output_embeddings().weight
    assert (model.anatomy.parameter_count("head") == 0) == tied


def test_conv1d_is_seen_as_outputs_by_inputs(tmp_path):
    """GPT-2's fused query-key-value maps 32 inputs to 96 outputs but is stored as (32, 96)."""
    model = load(find_model(save_tiny("gpt2", tmp_path)))
    fused = next(linear for linear in model.anatomy.linears if "c_attn" in linear.name)
    assert fused.shape == (96, 32)
    with torch.no_grad():
        fused.matrix[5, 7] = 42.0
    assert fused.module.weight[7, 5] == 42.0


def test_a_model_without_linear_layers_is_refused():
    with pytest.raises(BrokenModel, match="nothing to quantize"):
        dissect(nn.Sequential(nn.Embedding(3, 4)))
