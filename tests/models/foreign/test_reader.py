"""Checkpoints that the libraries themselves wrote (see make_data.py) mean here what they mean there; broken ones are named."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from laaciq.errors import BrokenModel
from laaciq.models import find_model, load
from tests.tiny import save_tiny

DATA = Path(__file__).parent / "data"
TOKENS = torch.arange(5, 45)[None]
# The libraries round each weight to float16, a relative error of up to 2^-11, we do not; then there are a few layers to grow it in.
# A code, a scale or a zero point in the wrong place moves logits by a tenth and more.
ROUNDING = 2**-8
WEIGHTS = "model.safetensors"
Q = "model.layers.0.self_attn.q_proj"


@pytest.fixture(scope="module")
def tokenizer_files(tmp_path_factory):
    folder = save_tiny("llama", tmp_path_factory.mktemp("tokenizer"))
    return [folder / "tokenizer.json", folder / "tokenizer_config.json"]


@pytest.fixture
def checkpoint(tmp_path, tokenizer_files):
    """A copy to do with as a test likes, with a tokenizer, which is stored for none of them."""

    def copy(name):
        folder = shutil.copytree(DATA / name, tmp_path / name, ignore=shutil.ignore_patterns("expected*"))
        for file in tokenizer_files:
            shutil.copy(file, folder)
        return folder

    return copy


def edit(folder, change):
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def edit_settings(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] |= changes
    (folder / "config.json").write_text(json.dumps(config))


def logits(model):
    return model.module(TOKENS).logits[0]


@pytest.mark.filterwarnings("ignore:.*its weights alone")
@pytest.mark.parametrize("name", sorted(folder.name for folder in DATA.iterdir()))
def test_weights_are_the_librarys_own(name, checkpoint):
    model = load(find_model(checkpoint(name)), device="cpu")
    expected = load_file(DATA / name / "expected.safetensors")["logits"].float()
    assert (logits(model) - expected).abs().max() < ROUNDING * expected.abs().max()
    assert not hasattr(model.module.config, "quantization_config")
    assert len(model.anatomy.linears) == (4 if "gpt2" in name else 7)


def test_shards_give_the_same_model(checkpoint):
    folder = checkpoint("gptq-v1-affine")
    whole = logits(load(find_model(folder)))
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    # Codes in one, scales in the other.
    where = {name: f"model-0000{1 + name.endswith('scales')}-of-00002.safetensors" for name in tensors}
    for file in set(where.values()):
        save_file({name: tensors[name] for name in tensors if where[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    assert torch.equal(logits(load(find_model(folder))), whole)


def test_rounded_activations_are_not_passed_over_in_silence(checkpoint):
    with pytest.warns(UserWarning, match=r"LLM\.int8\(\) also rounds activations"):
        load(find_model(checkpoint("bitsandbytes-int8")))
    with pytest.warns(UserWarning, match="also rounds activations as it runs"):
        load(find_model(checkpoint("compressed-tensors-int")))


def test_groups_in_the_order_of_activations(checkpoint):
    """`weight_g_idx`, which older versions of compressed-tensors wrote: an input takes the scale of the group that it points to."""
    folder = checkpoint("compressed-tensors-packed")
    before = load(find_model(folder)).module.model.layers[0].self_attn.v_proj.weight
    groups = torch.arange(64, dtype=torch.int32) // 32
    edit(folder, lambda t: t.update({"model.layers.0.self_attn.v_proj.weight_g_idx": 1 - groups}))
    after = load(find_model(folder)).module.model.layers[0].self_attn.v_proj.weight
    scales = load_file(folder / WEIGHTS)["model.layers.0.self_attn.v_proj.weight_scale"].float()
    # Symmetric: no zero point moves. The product of three float32 numbers is within a few roundings.
    torch.testing.assert_close(after, before * (scales.flip(1) / scales)[:, groups], rtol=1e-6, atol=0)


def test_bytes_under_the_name_of_another_type(checkpoint):
    """`bnb_4bit_quant_storage`."""
    folder = checkpoint("bitsandbytes-fp4")
    before = logits(load(find_model(folder)))
    edit(folder, lambda t: t.update({f"{Q}.weight": t[f"{Q}.weight"].flatten().view(torch.bfloat16)[:, None]}))
    assert torch.equal(logits(load(find_model(folder))), before)


def test_the_first_matching_pattern_counts(checkpoint):
    """The table `dynamic` says 8 bits for v_proj; a pattern before it that says 4 makes its codes too many."""
    folder = checkpoint("gptq-v1-act-order")
    table = json.loads((folder / "config.json").read_text())["quantization_config"]["dynamic"]
    edit_settings(folder, dynamic={**table, r".*v_proj": {"bits": 4}})
    load(find_model(folder))
    edit_settings(folder, dynamic={r".*v_proj": {"bits": 4}, **table})
    with pytest.raises(BrokenModel, match=r"v_proj\.\w+ has shape"):
        load(find_model(folder))


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("gptq-v1-affine", "qweight"),
        ("gptq-v1-affine", "qzeros"),
        ("gptq-v1-affine", "scales"),
        ("awq", "qweight"),
        ("awq", "scales"),
        ("bitsandbytes-nf4-double", "weight"),
        ("bitsandbytes-nf4-double", "weight.absmax"),
        ("bitsandbytes-nf4-double", "weight.nested_absmax"),
        ("bitsandbytes-nf4-double", "weight.quant_map"),
        ("bitsandbytes-nf4-double", "weight.quant_state.bitsandbytes__nf4"),
        ("compressed-tensors-packed", "weight_packed"),
        ("compressed-tensors-packed", "weight_scale"),
        ("compressed-tensors-packed", "weight_zero_point"),
        ("compressed-tensors-packed", "weight_shape"),
        ("compressed-tensors-naive", "weight"),
    ],
)
def test_a_missing_part_is_named(name, part, checkpoint):
    folder = checkpoint(name)
    edit(folder, lambda tensors: tensors.pop(f"{Q}.{part}"))
    with pytest.raises(BrokenModel, match=rf"{Q}\.{part}.* is missing.*copy it again"):
        load(find_model(folder))


def test_codes_without_any_scale(checkpoint):
    folder = checkpoint("bitsandbytes-int8")
    edit(folder, lambda tensors: [tensors.pop(f"{Q}.{part}") for part in ("SCB", "weight_format")])
    with pytest.raises(BrokenModel, match=rf"{Q}\.weight holds torch\.int8 codes"):
        load(find_model(folder))


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("gptq-v1-affine", "scales"),
        ("awq", "scales"),
        ("bitsandbytes-fp4", "weight.absmax"),
        ("bitsandbytes-nf4-double", "weight.nested_absmax"),
        ("bitsandbytes-int8", "SCB"),
        ("compressed-tensors-packed", "weight_scale"),
    ],
)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_scales_that_are_no_numbers(name, part, value, checkpoint):
    folder = checkpoint(name)
    edit(folder, lambda tensors: tensors[f"{Q}.{part}"].view(-1)[:1].fill_(value))
    with pytest.raises(BrokenModel, match=rf"{Q}\.{part} has NaN or infinite"):
        load(find_model(folder))


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("gptq-v1-affine", "scales"),
        ("gptq-v1-act-order", "g_idx"),
        ("awq", "qzeros"),
        ("bitsandbytes-fp4", "weight.absmax"),
        ("bitsandbytes-int8", "SCB"),
        ("compressed-tensors-packed", "weight_packed"),
        ("compressed-tensors-naive", "weight"),
    ],
)
def test_a_part_that_is_too_short(name, part, checkpoint):
    folder = checkpoint(name)
    edit(folder, lambda t: t.update({f"{Q}.{part}": t[f"{Q}.{part}"][:-1].clone()}))
    with pytest.raises(BrokenModel, match=rf"{Q}(\.{part} has shape| unpacks to)"):
        load(find_model(folder))


def test_bytes_that_do_not_fill_the_shape(checkpoint):
    folder = checkpoint("bitsandbytes-fp4")
    edit(folder, lambda t: t.update({f"{Q}.weight": t[f"{Q}.weight"][:-1].clone()}))
    with pytest.raises(BrokenModel, match=rf"{Q}\.weight has 2047 bytes, its shape needs 2048"):
        load(find_model(folder))


def test_a_state_that_is_no_json(checkpoint):
    folder = checkpoint("bitsandbytes-fp4")
    state = f"{Q}.weight.quant_state.bitsandbytes__fp4"
    edit(folder, lambda t: t.update({state: t[state][:-1].clone()}))
    with pytest.raises(BrokenModel, match="is not valid JSON"):
        load(find_model(folder))


def test_an_index_outside_its_groups(checkpoint):
    folder = checkpoint("gptq-v1-act-order")
    edit(folder, lambda t: t[f"{Q}.g_idx"][:1].fill_(4))
    with pytest.raises(BrokenModel, match="points outside its 4 groups"):
        load(find_model(folder))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("gptq-v1-affine", {"checkpoint_format": "marlin"}, "packed for marlin"),
        ("gptq-v1-affine", {"bits": 5}, "5 bits"),
        ("gptq-v1-affine", {"bits": "four"}, "bits = 'four', expected int"),
        ("gptq-v1-act-order", {"dynamic": {"(": {}}}, r"the pattern '\('"),
        ("awq", {"version": "gemv"}, "packed for gemv"),
        ("awq", {"group_size": 16}, "has shape"),
        ("compressed-tensors-packed", {"config_groups": {}}, "no group of quantization_config targets it"),
        ("compressed-tensors-packed", {"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config"),
        ("compressed-tensors-naive", {"format": "nvfp4-pack-quantized"}, "stored as"),
    ],
)
def test_settings_that_cannot_be_followed(name, changes, message, checkpoint):
    folder = checkpoint(name)
    edit_settings(folder, **changes)
    if name == "compressed-tensors-naive":
        groups = json.loads((folder / "config.json").read_text())["quantization_config"]["config_groups"]
        edit_settings(folder, config_groups={key: {**group, "format": None} for key, group in groups.items()})
    with pytest.raises(BrokenModel, match=message):
        load(find_model(folder))


def test_a_library_that_is_not_here(checkpoint):
    folder = checkpoint("gptq-v1-affine")
    edit_settings(folder, quant_method="quanto")
    with pytest.raises(BrokenModel, match=r"quantized by quanto.* optimum-quanto installed"):
        load(find_model(folder))
    edit_settings(folder, quant_method="never-heard-of")
    with pytest.raises(BrokenModel, match=r"the method .never-heard-of., which neither laaciq nor transformers knows"):
        load(find_model(folder))
