import json
import math
import os
import subprocess
import sys
from functools import partial

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

import laaciq
from laaciq.errors import BadOption, BrokenModel, MissingExtra
from laaciq.exporting.gguf import FILE, write_gguf
from tests.tiny import save_tiny

# Scripts, joined letters, digits, an apostrophe, spaces in a row, and a special token.
TEXTS = [
    "Habari ya dunia: watu 1234 walikuja.",
    "Здравствуй, мир!  Это   проверка.",
    "मुझे हिन्दी आती है।\nक्या आपको?",
    "こんにちは、世界。 I'm told it's fine; don't worry.",
    "مرحبا بالعالم <s> ١٢٣",
]
# In a process that has never heard of us.
READER = """
import json, sys, torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
folder, logits, texts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file="model.gguf", dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file="model.gguf")
with torch.inference_mode():
    torch.save(model(torch.arange(5, 60)[None]).logits, logits)
assert not any(name.startswith("laaciq") for name in sys.modules)
ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
print(json.dumps([ids, tokenizer.bos_token_id, tokenizer.eos_token_id]))
"""


def save_qwen3(folder):
    """transformers takes Qwen 3's heads to be 128 wide, whatever a GGUF file says."""
    save_tiny("qwen2", folder)
    config = AutoConfig.from_pretrained(folder)
    shape = {
        key: getattr(config, key) for key in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    }
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 128, "max_position_embeddings": 128}
    AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3", **shape, **heads)).save_pretrained(folder)
    return folder


def export(model, folder, **options):
    laaciq.quantize(model, out=folder / "checkpoint", **{"method": "rtn", "group_size": 32, **options})
    return write_gguf(folder / "checkpoint", folder / "gguf")


@torch.inference_mode()
def our_logits(checkpoint):
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    return model(torch.arange(5, 60)[None]).logits


@torch.inference_mode()
def read_here(folder):
    """As in a clean process, but quicker."""
    model = AutoModelForCausalLM.from_pretrained(folder / "gguf", gguf_file=FILE, dtype=torch.float32)
    return model(torch.arange(5, 60)[None]).logits


@pytest.mark.parametrize(
    ("model", "options"), [("reference", {"group_size": 64}), ("qwen2", {"attention_bits": 8})], ids=str
)
def test_transformers_alone_reads_the_same_model_and_tokenizer(model, options, tmp_path):
    written = export(model if model == "reference" else save_tiny(model, tmp_path / "model"), tmp_path, **options)
    assert written.exact
    assert not any(tensor.folded for tensor in written.tensors)
    command = [sys.executable, "-c", READER, str(tmp_path / "gguf"), str(tmp_path / "logits.pt"), json.dumps(TEXTS)]
    others = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=others)
    ids, bos, eos = json.loads(done.stdout.splitlines()[-1])
    # The same float32 weights in the same products: all that differs is ε of the norms, which GGUF has in float32.
    torch.testing.assert_close(
        torch.load(tmp_path / "logits.pt", weights_only=True), our_logits(tmp_path / "checkpoint"), rtol=1e-5, atol=1e-5
    )
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "checkpoint")
    assert ids == [tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
    assert (bos, eos) == (tokenizer.bos_token_id, tokenizer.eos_token_id)


@pytest.mark.parametrize(
    ("save", "options"),
    [
        (partial(save_tiny, "llama"), {"bits": 3, "embedding_bits": 8}),
        (partial(save_tiny, "llama"), {"bits": 6, "group_size": "tensor", "symmetric": False}),
        (save_qwen3, {"bits": 2, "group_size": "channel", "symmetric": False}),
    ],
    ids=["llama, 3 bits", "llama, 6 bits", "qwen3, 2 bits"],
)
def test_other_grids_are_read_exactly(save, options, tmp_path):
    written = export(save(tmp_path / "model"), tmp_path, **options)
    assert not any(tensor.error for tensor in written.tensors if tensor.bits_before < 16)
    logits = read_here(tmp_path)
    torch.testing.assert_close(logits, our_logits(tmp_path / "checkpoint"), rtol=1e-5, atol=1e-5)


def test_what_is_reported_by_hand(tmp_path):
    """4 bits in groups of 64 take 4.25 bits per weight in the checkpoint and 4.5 in blocks of 32; embeddings stay in 16."""
    written = export("reference", tmp_path, group_size=64)
    assert written.types == {"Q4_0": 84, "BF16": 1}
    by_name = {tensor.name: tensor for tensor in written.tensors}
    projection = by_name["model.layers.3.self_attn.q_proj.weight"]
    assert (projection.bits_before, projection.bits_after, projection.widened) == (4.25, 4.5, True)
    assert by_name["model.embed_tokens.weight"].bits_after == 16
    in_blocks, others = 12 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 256 * 1024), 19200 * 256
    assert written.bits_after == (4.5 * in_blocks + 16 * others) / (in_blocks + others)


def test_affine_codes_move_by_less_than_a_hundredth_of_a_step(tmp_path):
    written = export(save_tiny("llama", tmp_path / "model"), tmp_path, symmetric=False)
    assert written.types == {"Q4_1": 14, "F16": 2}
    moved = [tensor.error for tensor in written.tensors if tensor.type == "Q4_1"]
    # A step is at least a fifteenth of the largest weight's group, and offsets are rounded by 15·2⁻¹¹ steps at most.
    assert 0 < max(moved) < 2 * 15 / 2**11 / 15
    logits, ours = read_here(tmp_path), our_logits(tmp_path / "checkpoint")
    # Against what rounding to codes has done.
    assert 0 < (logits - ours).norm() < 0.02 * (ours - our_logits(tmp_path / "model")).norm()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"keep": 1.0}, "1 % of its weights are kept"),
        ({"rank": 2}, "correction of rank 2"),
        ({"group_size": 16}, "groups of 16"),
    ],
    ids=str,
)
def test_what_blocks_cannot_hold_is_folded_into_sixteen_bits(options, reason, tmp_path):
    written = export(save_tiny("llama", tmp_path / "model"), tmp_path, **options)
    folded = [tensor for tensor in written.tensors if tensor.folded]
    assert len(folded) == 14
    assert all(reason in tensor.folded and tensor.type == "F16" for tensor in folded)
    # Rounded to float16, at most by one part in 2¹¹.
    assert all(0 < tensor.error <= 2**-11 for tensor in folded)
    logits = read_here(tmp_path)
    torch.testing.assert_close(logits, our_logits(tmp_path / "checkpoint"), rtol=0.01, atol=0.01)


def test_language_tables_stay_behind(tmp_path):
    model = save_tiny("llama", tmp_path / "model")
    export(model, tmp_path, method="adaptive", languages=["eng", "swa"], table_overhead=2.0, served_bound=99.0)
    logits = read_here(tmp_path)
    torch.testing.assert_close(logits, our_logits(tmp_path / "checkpoint"), rtol=1e-5, atol=1e-5)


def test_a_model_that_is_not_quantized_is_written_in_sixteen_bits(tmp_path):
    folder = save_tiny("llama", tmp_path / "checkpoint", dtype=torch.bfloat16)
    written = write_gguf(folder, tmp_path / "gguf")
    assert set(written.types) <= {"F16", "BF16"}
    assert written.exact
    logits = read_here(tmp_path)
    torch.testing.assert_close(logits, our_logits(folder), rtol=1e-5, atol=1e-5)


def test_other_architectures_are_refused_and_nothing_is_written(tmp_path):
    model = save_tiny("gpt2", tmp_path / "model")
    laaciq.quantize(model, out=tmp_path / "checkpoint", method="rtn", group_size=32)
    with pytest.raises(BadOption, match="architecture is gpt2, and only llama, mistral, qwen2, qwen3"):
        write_gguf(tmp_path / "checkpoint", tmp_path / "gguf")
    assert not (tmp_path / "gguf").exists()


def test_scaled_rotary_embeddings_are_refused(tmp_path):
    scaled = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
    folder = save_tiny("llama", tmp_path / "model", rope_parameters=scaled)
    with pytest.raises(BadOption, match=r"scaled \(linear\)"):
        write_gguf(folder, tmp_path / "gguf")


def test_frequencies_scaled_as_in_llama_3_are_for_llama_cpp(tmp_path):
    scaled = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0}
    scaled |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 128}
    written = write_gguf(save_tiny("llama", tmp_path / "model", rope_parameters=scaled), tmp_path / "gguf")
    assert not written.for_transformers
    tensors = {tensor.name: tensor.data for tensor in gguf.GGUFReader(tmp_path / "gguf" / FILE).tensors}
    # Wavelengths 2π, 20π, 200π, 2000π: below 128/4, between that and 128, and twice above.
    smooth = (128 / (20 * math.pi) - 1) / (4 - 1)
    assert tensors["rope_freqs.weight"] == pytest.approx([1, 1 / ((1 - smooth) / 8 + smooth), 8, 8], rel=1e-5)


def test_without_the_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[gguf\]'"):
        write_gguf(tmp_path, tmp_path)


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(BrokenModel, match=r"no config\.json"):
        write_gguf(tmp_path, tmp_path / "gguf")


def test_a_checkpoint_that_lacks_codes(tmp_path):
    export(save_tiny("llama", tmp_path / "model"), tmp_path)
    path = tmp_path / "checkpoint/model.safetensors"
    tensors = load_file(path)
    del tensors["model.layers.0.mlp.up_proj.codes"]
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(BrokenModel, match="half-written: it lacks tensors"):
        write_gguf(tmp_path / "checkpoint", tmp_path / "again")
    assert not list((tmp_path / "again").iterdir())


def test_a_failure_half_way_leaves_no_file(tmp_path, monkeypatch):
    folder = save_tiny("llama", tmp_path / "model")
    write_gguf(folder, tmp_path / "gguf")
    before = (tmp_path / "gguf" / FILE).read_bytes()

    def fail(*args):
        raise MemoryError

    monkeypatch.setattr("laaciq.exporting.gguf.to_16bit_blocks", fail)
    with pytest.raises(MemoryError):
        write_gguf(folder, tmp_path / "gguf")
    assert [path.name for path in (tmp_path / "gguf").iterdir()] == [FILE]
    assert (tmp_path / "gguf" / FILE).read_bytes() == before


def test_bos_is_asked_for_where_the_tokenizer_adds_it(tmp_path):
    for architecture, expected in (("llama", True), ("qwen2", False)):
        write_gguf(save_tiny(architecture, tmp_path / architecture), tmp_path / "gguf")
        fields = gguf.GGUFReader(tmp_path / "gguf" / FILE).fields
        assert fields["tokenizer.ggml.add_bos_token"].contents() == expected
        assert fields["tokenizer.ggml.add_eos_token"].contents() is False
