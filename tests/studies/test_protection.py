from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import laaciq
from laaciq.models import find_model, load
from laaciq.options import GridOptions, WeightOptions
from laaciq.planning.rules import make_plans
from laaciq.scoring.likelihood import nll_by_passage
from laaciq.scoring.sequences import prepare_all
from laaciq.studies.protection import ProtectableBlocks, nll_by_set, prefix_count, prefixes_suffice
from laaciq.trials.candidate import RoundedMatrices
from laaciq.trials.quantized_copy import QuantizedCopy
from tests.tiny import ARCHITECTURES, KIND, save_tiny

GRID = {"bits": 3, "group_size": 16, "symmetric": True}
DEPTH = {"gpt2": "n_layer", "bloom": "n_layer", "xglm": "num_layers", "mt5": "num_layers"}


def opened(architecture, folder, blocks=4):
    # mT5 has as many in its encoder as in its decoder.
    depth = blocks // 2 if architecture == "mt5" else blocks
    saved = save_tiny(architecture, folder, **{DEPTH.get(architecture, "num_hidden_layers"): depth})
    model = load(find_model(saved), device="cpu")
    return ProtectableBlocks(model, make_plans(model.anatomy, WeightOptions(**GRID)).first)


def passages(model, count=3):
    depth = laaciq.read_split().validation["swa"]
    # Of different lengths, so that batches are padded.
    texts = tuple(text[: 30 + 10 * k] for k, text in enumerate(depth.texts[:count]))
    return prepare_all(model, replace(depth.at(range(count)), texts=texts))


def weights(model):
    return {name: tensor.clone() for name, tensor in model.module.state_dict().items()}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_set_of_every_architecture_costs_what_a_whole_pass_says(architecture, tmp_path):
    blocks = opened(architecture, tmp_path / "model")
    model, prepared = blocks.model, passages(blocks.model)
    before, copy = weights(model), QuantizedCopy(model)
    sets = [protected for size in range(5) for protected in combinations(range(4), size)]
    shared = prefixes_suffice(blocks, prepared[0].sequences[:2])
    assert shared == (KIND[architecture] != "encoder-decoder")
    result = nll_by_set(blocks, prepared, sets, by_prefix=shared)
    for protected, nll in zip(sets, result, strict=True):
        names = frozenset(linear.name for linear in model.anatomy.linears if linear.block not in protected)
        with RoundedMatrices("others", names, GridOptions(**GRID)).applied(copy, "eng") as quantized:
            expected = nll_by_passage(quantized, prepared)
        # The head may be run on other batches, in float32.
        assert nll == pytest.approx(expected, rel=1e-5)
    assert np.ptp(result.sum(1)) > 0.1
    # Packed, with the weights of a block at a time.
    fetched = ProtectableBlocks(model, make_plans(model.anatomy, WeightOptions(**GRID)).first, packed=True)
    assert np.array_equal(nll_by_set(fetched, prepared, sets, by_prefix=shared), result)
    assert all(tensor.equal(before[name]) for name, tensor in model.module.state_dict().items())
    assert not any("forward" in vars(block) for block in blocks.blocks)


def test_a_block_is_run_once_for_every_prefix(tmp_path):
    blocks = opened("llama", tmp_path / "model")
    prepared, runs = passages(blocks.model), []
    handles = [block.self_attn.register_forward_hook(lambda *_: runs.append(1)) for block in blocks.blocks]
    sets = list(combinations(range(4), 2))
    nll_by_set(blocks, prepared, sets, by_prefix=True)
    for handle in handles:
        handle.remove()
    # 2, 4, 6 and 6 prefixes. Before them calls are noted, for which the first block is run.
    assert len(runs) == 18 + 1
    assert prefix_count(sets, 4) == 18
    assert prefix_count(list(combinations(range(12), 3)), 12) == 999


def test_blocks_that_share_more_than_hidden_states_are_found_out(tmp_path):
    """The last block also hears what entered the first one after it was last quantized or not: a way around the hidden states."""
    blocks = opened("llama", tmp_path / "model")
    heard = {}

    def tell(module, arguments, output):
        heard["first"] = output

    def hear(module, arguments, output):
        return output + heard["first"]

    blocks.blocks[0].register_forward_hook(tell)
    blocks.blocks[-1].register_forward_hook(hear)
    sequences = [s for passage in passages(blocks.model) for s in passage.sequences][:2]
    assert prefixes_suffice(blocks, sequences) is False


def test_however_a_walk_ends_the_model_is_what_it_was(tmp_path):
    blocks = opened("gpt2", tmp_path / "model")
    prepared, before = passages(blocks.model), weights(blocks.model)

    def stop(tokens):
        raise KeyboardInterrupt

    for shared in (True, False):
        with pytest.raises(KeyboardInterrupt):
            nll_by_set(blocks, prepared, [(), (1,)], by_prefix=shared, advance=stop)
        assert all(tensor.equal(before[name]) for name, tensor in blocks.model.module.state_dict().items())
