"""Embeddings and head as codes, from the plan to what transformers loads."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import laaciq
from laaciq.errors import BrokenModel
from laaciq.models import find_model, load
from laaciq.options import SpeedOptions, WeightOptions
from laaciq.planning.rules import make_plans
from laaciq.quantization import apply_checkpoint, write_checkpoint
from laaciq.quantization.embeddings import QuantizedEmbedding
from laaciq.quantization.layers import QuantizedLinear
from laaciq.quantization.model import quantize_layers
from laaciq.speed.child import measure_both
from laaciq.speed.results import Request
from laaciq.trials.quantized_copy import copy_of, put_layers
from tests.tiny import ARCHITECTURES, save_tiny

WEIGHTS = "model.safetensors"
IDS = torch.arange(5, 25)[None]


def quantize(model, folder, **options):
    plan = make_plans(model.anatomy, WeightOptions(**{"group_size": 16, "embedding_bits": 4, **options})).first
    write_checkpoint(model, plan, folder)
    return plan


def dequantized_copy(model, folder):
    copy = copy_of(model)
    apply_checkpoint(copy, folder)
    return copy


def logits(model):
    ids = IDS.to(model.device)
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if model.kind == "encoder-decoder" else {})
    with torch.inference_mode():
        return model.module(**inputs).logits


def mt5_with_a_head_of_its_own(folder):
    """As Google's: the configuration says tied, but the checkpoint holds two matrices."""
    path = save_tiny("mt5", folder) / WEIGHTS
    tensors = load_file(path)
    head = torch.randn(tensors["shared.weight"].shape, generator=torch.Generator().manual_seed(1))
    save_file(tensors | {"lm_head.weight": 0.25 * head}, path, metadata={"format": "pt"})
    return folder


MODELS = {
    **{name: lambda folder, name=name: save_tiny(name, folder) for name in ARCHITECTURES},
    "llama, tied": lambda folder: save_tiny("llama", folder, tie_word_embeddings=True),
    "gpt2, untied": lambda folder: save_tiny("gpt2", folder, tie_word_embeddings=False),
    "mt5, two matrices": mt5_with_a_head_of_its_own,
}
KINDS = [
    {"embedding_bits": 4},
    {"embedding_bits": 8, "bits": 8, "group_size": "channel"},
    {"embedding_bits": 3, "symmetric": False, "method": "mse", "rank": 2, "keep": 1.0},
]
CASES = [(name, 0) for name in MODELS]
CASES += [(name, kind) for name in ("llama", "gpt2", "bloom", "xglm", "mt5", "gemma3") for kind in (1, 2)]
RELOAD = """
import json, sys, torch, laaciq
from safetensors.torch import save_file
from laaciq.models import find_model, load
found = {}
for folder in json.loads(sys.argv[1]):
    model = load(find_model(folder), device="cpu")
    ids = torch.arange(5, 25)[None]
    asked = {"input_ids": ids} | ({"decoder_input_ids": ids} if model.kind == "encoder-decoder" else {})
    with torch.inference_mode():
        found[folder] = model.module(**asked).logits.contiguous()
save_file(found, sys.argv[2])
"""


@pytest.fixture(scope="module")
def reloaded(tmp_path_factory):
    """By model and kind: the simulated model's logits, and those of its checkpoint in a new process."""
    root = tmp_path_factory.mktemp("embeddings")
    simulated = {}
    models = {name: load(find_model(save(root / name)), device="cpu") for name, save in MODELS.items()}
    for name, kind in CASES:
        folder = root / f"{name}-{kind}"
        quantize(models[name], folder, **KINDS[kind])
        simulated[name, kind] = (str(folder), logits(dequantized_copy(models[name], folder)), logits(models[name]))
    folders = json.dumps([folder for folder, *_ in simulated.values()])
    subprocess.run([sys.executable, "-c", RELOAD, folders, root / "logits"], capture_output=True, check=True)
    loaded = load_file(root / "logits")
    return {key: (loaded[folder], expected, original) for key, (folder, expected, original) in simulated.items()}


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_new_process_loads_what_was_simulated(reloaded, name, kind):
    result, expected, original = reloaded[name, kind]
    # The same float32 weights in the same products; Conv1D multiplies in another order.
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(result, original, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("architecture", ["llama", "xlm-roberta", "mt5"])
def test_simulated_embeddings_are_what_checkpoints_mean(architecture, tmp_path):
    """And are, of all matrices, what the plan says: nothing but a rounding of the original's."""
    model = load(find_model(save_tiny(architecture, tmp_path / "model")))
    plan = quantize(model, tmp_path / "checkpoint", bits=8)
    written, simulated = dequantized_copy(model, tmp_path / "checkpoint"), copy_of(model)
    put_layers(model, simulated, quantize_layers(model, plan))
    assert [t.name for t in plan.token_matrices] == [t.name for t in model.anatomy.token_matrices]
    for tensor in plan.token_matrices:
        before, after = model.anatomy.matrices[tensor.name], written.anatomy.matrices[tensor.name]
        assert torch.equal(after, simulated.anatomy.matrices[tensor.name])
        # Half of a step of a grid of 4 bits, its scale rounded to 16.
        assert 0 < (after - before).abs().max() <= 0.51 * before.abs().max() / 7


@pytest.mark.parametrize(("bits", "rank"), [(4, 2), (8, 0)])
def test_size_on_disk_is_the_size_in_the_plan(tmp_path, bits, rank):
    model = load(find_model("reference"))
    plan = quantize(model, tmp_path, embedding_bits=bits, group_size=64, rank=rank)
    assert plan.size.model_bytes <= (tmp_path / WEIGHTS).stat().st_size <= 1.01 * plan.size.model_bytes
    # The table and the head, which are one matrix, and little else in 16 bits.
    layers = 12 * (2 * (256 + 256) + 2 * (256 + 128) + 3 * (256 + 1024))
    blocks = 12 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 256 * 1024)
    assert plan.size.block_bytes == blocks * 4.25 / 8 + 2 * rank * layers
    assert plan.size.model_bytes == plan.size.block_bytes + 19200 * 256 * (bits + 0.25) / 8 + 25 * 256 * 2


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("tied")
    model = save_tiny("llama", root / "model", tie_word_embeddings=True)
    quantize(load(find_model(model)), root / "checkpoint", rank=2)
    return root


def test_tied_modules_share_their_codes(folders):
    model = AutoModelForCausalLM.from_pretrained(folders / "checkpoint", dtype=torch.float32)
    table, head = model.model.embed_tokens, model.lm_head
    assert isinstance(table, QuantizedEmbedding)
    assert isinstance(head, QuantizedLinear)
    assert not [name for name in model.state_dict() if name.startswith("lm_head")]
    model = model.to(torch.float64).to(torch.float32)
    assert all(part is head.parts[name] for name, part in table.parts.items())
    assert torch.equal(table.weight, head.weight)
    before = model(IDS).logits
    model.tie_weights()
    assert torch.equal(model(IDS).logits, before)


def test_embeddings_follow_the_type_of_the_model(folders):
    model = AutoModelForCausalLM.from_pretrained(folders / "checkpoint", dtype=torch.float32)
    assert model.to(torch.float64).model.embed_tokens(IDS).dtype == torch.float64
    assert model.model.embed_tokens.scales.dtype == torch.float16
    assert model.model.embed_tokens(torch.zeros(2, 0, dtype=torch.int32)).shape == (2, 0, 32)


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "mt5"])
def test_it_can_be_saved_again(architecture, tmp_path):
    quantize(load(find_model(save_tiny(architecture, tmp_path / "model"))), tmp_path / "checkpoint", rank=2)
    first = load(find_model(tmp_path / "checkpoint"))
    first.module.save_pretrained(tmp_path / "again")
    first.tokenizer.save_pretrained(tmp_path / "again")
    assert torch.equal(logits(load(find_model(tmp_path / "again"))), logits(first))
    assert set(load_file(tmp_path / "again" / WEIGHTS)) == set(load_file(tmp_path / "checkpoint" / WEIGHTS))


def test_what_is_done_with_checkpoints_is_done_with_these(folders):
    checkpoint, model = folders / "checkpoint", folders / "model"
    evaluated = laaciq.evaluate(checkpoint, against=model, languages=["eng"], served_bound=100)
    assert [result.language for result in evaluated.languages] == ["eng"]
    loaded = load(find_model(checkpoint))
    answers = laaciq.generate(loaded.module, loaded.tokenizer, ["The river", "Mto huu"], max_new_tokens=4)
    assert len(answers) == 2
    options = SpeedOptions(prompt_tokens=8, new_tokens=3)
    bench = measure_both(
        Request(checkpoint=str(checkpoint), against=str(model), device="cpu", options=options), lambda: None
    )
    assert bench.kernels.dequantized == 15  # the head, and seven linear layers in each of two blocks


def broken(folders, tmp_path, change):
    """A copy of the checkpoint whose tensors were changed."""
    copy = tmp_path / "checkpoint"
    copy.mkdir()
    for path in (folders / "checkpoint").iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    tensors = load_file(copy / WEIGHTS)
    change(tensors)
    save_file(tensors, copy / WEIGHTS, metadata={"format": "pt"})
    return copy


@pytest.mark.parametrize("part", ["model.embed_tokens.codes", "model.layers.0.mlp.up_proj.low_rank_left"])
def test_missing_parts(folders, tmp_path, part):
    copy = broken(folders, tmp_path, lambda tensors: tensors.pop(part))
    # What is missing holds whatever lies in memory there.
    with pytest.raises(BrokenModel, match=r"half-written|NaN or infinite"):
        load(find_model(copy))
    with pytest.raises(BrokenModel, match="half-written"):
        dequantized_copy(load(find_model(folders / "model")), copy)


@pytest.mark.parametrize("part", ["model.embed_tokens.scales", "model.layers.0.mlp.up_proj.low_rank_right"])
def test_parts_of_another_shape_or_that_are_no_numbers(folders, tmp_path, part):
    def cut(tensors):
        tensors[part] = tensors[part][:-1]

    def spoil(tensors):
        tensors[part][0, 0] = float("nan")

    original = load(find_model(folders / "model"))
    for name, change, says in (("cut", cut, "has shape"), ("spoilt", spoil, "NaN or infinite")):
        (tmp_path / name).mkdir()
        copy = broken(folders, tmp_path / name, change)
        with pytest.raises(BrokenModel, match=says):
            dequantized_copy(original, copy)
        with pytest.raises(BrokenModel, match=says):
            load(find_model(copy))


def test_a_plan_for_another_model(tmp_path):
    llama = load(find_model(save_tiny("llama", tmp_path / "a")))
    wider = load(find_model(save_tiny("llama", tmp_path / "b", vocab_size=500)))
    plan = make_plans(llama.anatomy, WeightOptions(group_size=16, embedding_bits=4)).first
    with pytest.raises(BrokenModel, match="plan is for another model"):
        write_checkpoint(wider, plan, tmp_path / "checkpoint")
    quantize(llama, tmp_path / "checkpoint")
    config = tmp_path / "checkpoint/config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"vocab_size": 500}))
    with pytest.raises(BrokenModel, match="embed_tokens is not an embedding or linear layer of shape"):
        load(find_model(tmp_path / "checkpoint"))
