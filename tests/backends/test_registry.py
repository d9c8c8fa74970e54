import tomllib
from pathlib import Path

import pytest
import torch

from laaciq.backends.contract import Backend, BackendResult, matrices_besides
from laaciq.backends.registry import BACKENDS
from laaciq.backends.size import bits_per_weight, left_alone_in_blocks
from laaciq.errors import BadOption, MissingExtra
from laaciq.models import find_model, load
from laaciq.options.methods import METHODS
from tests.tiny import save_tiny

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def halving(model, tokenizer, texts, *, bits, device):
    """A back end that stores `nn.Linear` weights at half their value and, like several libraries, skips GPT-2's layers."""
    weights = {
        f"{name}.weight": module.weight.detach() / 2
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and name != "lm_head"
    }
    stored = {name: float(bits * weight.numel()) for name, weight in weights.items()}
    return BackendResult("", weights, stored, matrices_besides(model, weights))


def made_up(library="torch"):
    return Backend("halving", "", library=library, extra="half", bits=(2, 4), reads_text=False, run=halving)


def test_every_back_end_has_an_extra_and_a_name_of_its_own():
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert {backend.extra for backend in BACKENDS.values()} <= set(extras)
    assert all(backend.bits and backend.summary.endswith(".") for backend in BACKENDS.values())
    assert not set(BACKENDS) & set(METHODS)


def test_bits_or_a_library_that_are_missing_are_named():
    with pytest.raises(BadOption, match="halving supports 2 or 4 bits, not 3"):
        made_up().require(3)
    for library in ("no_such_library", "no_such_package.library"):
        with pytest.raises(MissingExtra, match=r"is not installed: run pip install '\.\[half\]'"):
            made_up(library).require(4)


def test_size_counts_what_was_left_alone_in_full(tmp_path):
    model = load(find_model(save_tiny("llama", tmp_path / "llama")))
    result = made_up().quantize(model.module, model.tokenizer, [], bits=4)
    anatomy = model.anatomy
    in_blocks, everything = anatomy.parameter_count("block"), anatomy.parameter_count()
    assert bits_per_weight(result, anatomy) == (4.0, (4 * in_blocks + 16 * (everything - in_blocks)) / everything)
    assert left_alone_in_blocks(result, anatomy) == []
    weight = next(iter(result.weights))
    result.put_into(model.module)
    assert torch.equal(model.module.get_parameter(weight), result.weights[weight])


@pytest.mark.parametrize("name", ["hqq", "quanto", "torchao"])
def test_libraries_that_skip_the_layers_of_gpt2_are_warned_of(name, gpt2):
    pytest.importorskip(BACKENDS[name].library)
    with pytest.warns(UserWarning, match=f"{name} left 8 of 8 linear layers unquantized"):
        assert not BACKENDS[name].quantize(*gpt2, [], bits=4).weights


def test_layers_that_a_library_skips_are_named(tmp_path):
    model = load(find_model(save_tiny("gpt2", tmp_path / "gpt2")))
    with pytest.warns(
        UserWarning, match="halving left 8 of 8 linear layers unquantized: transformer.h.0.attn.c_attn.weight"
    ):
        result = made_up().quantize(model.module, model.tokenizer, [], bits=4)
    assert left_alone_in_blocks(result, model.anatomy) == [linear.name for linear in model.anatomy.linears]
    assert bits_per_weight(result, model.anatomy) == (16.0, 16.0)
