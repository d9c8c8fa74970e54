import pytest
import torch

from laaciq.models import find_model, load
from laaciq.profiling.activations import blocks_in_encoder
from laaciq.scoring.block_calls import BlockCalls
from laaciq.scoring.likelihood import target_losses
from laaciq.scoring.sequences import prepare_all
from tests.tiny import ARCHITECTURES, KIND, passages_of, save_tiny

TEXTS = ("The cat sat.", "A much longer sentence with number 42 in it.", "Привет, мир!")


def parts(architecture, folder):
    model = load(find_model(save_tiny(architecture, folder)))
    sequences = [s for passage in prepare_all(model, passages_of(TEXTS)) for s in passage.sequences]
    return model, [model.module.get_submodule(name) for name in model.anatomy.block_names], sequences


@pytest.mark.parametrize("architecture", [a for a in ARCHITECTURES if KIND[a] != "encoder-decoder"])
def test_blocks_one_by_one_are_the_whole_pass(architecture, tmp_path):
    model, blocks, sequences = parts(architecture, tmp_path)
    with torch.inference_mode():
        whole = target_losses(model, sequences)
        calls = BlockCalls(model, blocks, blocks_in_encoder(model), sequences)
        hidden = calls.entering[0]
        for index in range(len(blocks)):
            hidden = calls.run(index, hidden)
        torch.testing.assert_close(calls.losses(hidden), whole)
        # The model is afterwards what it was.
        torch.testing.assert_close(target_losses(model, sequences), whole)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_calls_are_noted_without_computing_blocks_that_share_hidden_states_alone(architecture, tmp_path):
    model, blocks, sequences = parts(architecture, tmp_path)
    computed = set()
    for linear in model.anatomy.linears:
        linear.module.register_forward_hook(lambda *_, block=linear.block: computed.add(block))
    BlockCalls(model, blocks, blocks_in_encoder(model), sequences)
    # What a decoder hears is its encoder's end: there all but the last are needed.
    last = len(blocks) - 1
    assert computed == (set(range(last)) if KIND[architecture] == "encoder-decoder" else {0})
