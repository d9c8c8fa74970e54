import json
import re

import pytest
import torch
from safetensors.torch import load_file, save_file

import laaciq
from laaciq.commands.export import Exported
from laaciq.errors import BadOption, OutputConflict
from laaciq.models import find_model, load
from laaciq.options import WeightOptions
from laaciq.planning.rules import make_plans
from laaciq.quantization import apply_checkpoint, write_checkpoint
from laaciq.trials.quantized_copy import copy_of
from tests.tiny import save_tiny

FORMATS = ("compressed-tensors", "gptq")
SHORT = {"languages": ["eng", "swa"], "passages": 3, "served_bound": 100.0}
WIDE = {"hidden_size": 64, "intermediate_size": 96}


@pytest.fixture
def model(tmp_path):
    return save_tiny("llama", tmp_path / "model", **WIDE)


def quantize(model, out, **options):
    laaciq.quantize(model, out=out, **{"method": "rtn", "group_size": 32, **options})
    return out


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("extra", "reason"),
    [({"keep": 1.0}, "1 % of its weights are kept in 16 bits"), ({"rank": 2}, "it has a correction of rank 2")],
    ids=str,
)
def test_what_a_format_cannot_carry_is_refused_or_folded(model, tmp_path, format, extra, reason):
    """One layer of all has something beside its codes."""
    loaded = load(find_model(model))
    plan = make_plans(loaded.anatomy, WeightOptions(group_size=32)).first
    special = plan.tensors[0].model_copy(update=extra)
    plan = plan.model_copy(update={"tensors": [special, *plan.tensors[1:]]})
    write_checkpoint(loaded, plan, tmp_path / "q")
    with pytest.raises(BadOption, match=rf"cannot carry {special.name}: {reason}; --fold stores it in 16 bits"):
        laaciq.export(tmp_path / "q", format=format, out=tmp_path / "out")
    with pytest.raises(BadOption, match="--against"):
        laaciq.export(tmp_path / "q", format=format, out=tmp_path / "out", fold=True)
    assert not (tmp_path / "out").exists()
    result = laaciq.export(tmp_path / "q", format=format, out=tmp_path / "out", fold=True, against=model, **SHORT)
    assert [misfit.tensor for misfit in result.folded] == [special.name]
    assert sum(result.layouts.values()) == 13
    dequantized = copy_of(loaded)
    apply_checkpoint(dequantized, tmp_path / "q")
    stored = load_file(tmp_path / "out/model.safetensors")[special.name]
    # Half of float16's last place, relative or, of the smallest numbers, absolute.
    torch.testing.assert_close(stored.float(), dequantized.anatomy.matrices[special.name], rtol=2**-11, atol=2**-25)


def test_folding_says_what_it_costs(model, tmp_path):
    checkpoint = quantize(model, tmp_path / "q", bits=3, embedding_bits=8)
    exported = laaciq.export(checkpoint, format="gptq", out=tmp_path / "out", fold=True, against=model, **SHORT)
    assert [misfit.tensor for misfit in exported.folded] == ["model.embed_tokens.weight", "lm_head.weight"]
    assert exported.bytes_after > exported.bytes_before
    assert [result.passages for result in exported.after.languages] == [3, 3]
    before, after = (e.languages[0].degradation.value for e in (exported.before, exported.after))
    # The weights of the embeddings are rounded to 11 bits: something changes, and little.
    assert before != after
    assert after == pytest.approx(before, abs=0.01)
    assert Exported.model_validate_json((tmp_path / "out/export.json").read_text()) == exported


def test_what_a_runtime_does_not_load_is_refused_before_anything_is_written(model, tmp_path):
    checkpoint = quantize(model, tmp_path / "q", attention_bits=8)
    out = tmp_path / "out"
    with pytest.raises(BadOption, match=r"vLLM on a CPU does not load this: 4 bits \(broken by .*q_proj and 7 more\)"):
        laaciq.export(checkpoint, format="compressed-tensors", out=out, runtime="vllm-cpu")
    with pytest.raises(BadOption, match=r"llama\.cpp does not read compressed-tensors: give --format gguf"):
        laaciq.export(checkpoint, format="compressed-tensors", out=out, runtime="llama.cpp")
    assert not out.exists()
    assert set(laaciq.export(checkpoint, format="gptq", out=out, runtime="vllm").runtimes) == {"vllm"}
    dynamic = json.loads((out / "config.json").read_text())["quantization_config"]["dynamic"]
    # vLLM asks for the fused layer by its own name.
    assert sum(re.match(rule[2:], "model.layers.1.mlp.gate_up_proj") is not None for rule in dynamic) == 1


def test_an_export_without_codes_is_none(model, tmp_path):
    checkpoint = quantize(model, tmp_path / "q", keep=1.0)
    with pytest.raises(BadOption, match="gptq can carry nothing of"):
        laaciq.export(checkpoint, format="gptq", out=tmp_path / "out", fold=True, against=model, **SHORT)


def test_tables_are_folded_to_the_shared_scales(model, tmp_path):
    words = {"languages": ["eng", "swa", "hin"], "served_bound": 100.0}
    checkpoint = quantize(model, tmp_path / "q", method="adaptive", bits=3, table_overhead=2.0, **words)
    result = laaciq.export(
        checkpoint, format="compressed-tensors", out=tmp_path / "out", fold=True, against=model, passages=3, **words
    )
    assert {misfit.folded_to for misfit in result.folded} == {"shared scales"}
    assert sum(result.layouts.values()) == 14
    shared = load_file(checkpoint / "model.safetensors")["model.layers.0.mlp.up_proj.scales"]
    assert torch.equal(load_file(tmp_path / "out/model.safetensors")["model.layers.0.mlp.up_proj.weight_scale"], shared)
    assert [r.degradation for r in result.before.languages] != [r.degradation for r in result.after.languages]


def test_folding_without_loss_needs_no_original(model, tmp_path):
    """Codes −1, 0, 1 times a float16 scale are float16."""
    checkpoint = quantize(model, tmp_path / "q", bits=4, embedding_bits=2)
    result = laaciq.export(checkpoint, format="gptq", out=tmp_path / "out", fold=True)
    assert len(result.folded) == 2
    assert result.before is None
    dequantized = copy_of(load(find_model(model)))
    apply_checkpoint(dequantized, checkpoint)
    stored = load_file(tmp_path / "out/model.safetensors")
    assert torch.equal(stored["lm_head.weight"].float(), dequantized.module.lm_head.weight)


def test_conv1d_is_no_linear_layer_to_compressed_tensors(tmp_path):
    checkpoint = quantize(save_tiny("gpt2", tmp_path / "model"), tmp_path / "q")
    with pytest.raises(BadOption, match=r"transformer\.h\.0\.attn\.c_attn\.weight: it is a Conv1D"):
        laaciq.export(checkpoint, format="compressed-tensors", out=tmp_path / "out")
    assert sum(laaciq.export(checkpoint, format="gptq", out=tmp_path / "out").layouts.values()) == 8


def test_shapes_that_do_not_fill_words(tmp_path):
    """Two key-value heads of eight dimensions."""
    checkpoint = quantize(save_tiny("llama", tmp_path / "model"), tmp_path / "q")
    with pytest.raises(BadOption, match=r"k_proj\.weight: its shape 16×32 is not a multiple of 32"):
        laaciq.export(checkpoint, format="gptq", out=tmp_path / "out")
    assert laaciq.export(checkpoint, format="compressed-tensors", out=tmp_path / "out").layouts


def test_scales_beyond_float16(model, tmp_path):
    tensors = load_file(model / "model.safetensors")
    tensors["model.layers.0.mlp.up_proj.weight"] *= 1e-6
    save_file(tensors, model / "model.safetensors", metadata={"format": "pt"})
    checkpoint = quantize(model, tmp_path / "q")
    with pytest.raises(BadOption, match=r"layers\.0\.mlp\.up_proj\.weight: its scales are beyond float16"):
        laaciq.export(checkpoint, format="gptq", out=tmp_path / "out")
    laaciq.export(checkpoint, format="compressed-tensors", out=tmp_path / "out")
    stored = load_file(tmp_path / "out/model.safetensors")
    assert stored["model.layers.0.mlp.up_proj.weight_scale"].dtype == torch.bfloat16


def test_mixed_precision_in_words(model, tmp_path):
    checkpoint = quantize(model, tmp_path / "q", attention_bits=8, protect=("0",))
    laaciq.export(checkpoint, format="compressed-tensors", out=tmp_path / "ct")
    config = json.loads((tmp_path / "ct/config.json").read_text())["quantization_config"]
    by_bits = {group["weights"]["num_bits"]: group["targets"] for group in config["config_groups"].values()}
    assert {bits: len(targets) for bits, targets in by_bits.items()} == {8: 4, 4: 3}
    assert {name.split(".")[2] for name in config["ignore"]} == {"0"}
    laaciq.export(checkpoint, format="gptq", out=tmp_path / "gptq")
    config = json.loads((tmp_path / "gptq/config.json").read_text())["quantization_config"]
    matching = {
        layer: [rule for rule in config["dynamic"] if re.match(rule[2:], layer)]
        for layer in ("model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj", "model.layers.1.self_attn.q_proj")
    }
    assert config["bits"] == 8
    assert [rules and rules[0][:2] for rules in matching.values()] == ["-:", "+:", []]
    assert config["dynamic"][matching["model.layers.1.mlp.up_proj"][0]] == {"bits": 4, "group_size": 32, "sym": True}


def test_the_folder_is_whole_and_holds_no_code(model, tmp_path):
    checkpoint = quantize(model, tmp_path / "q")
    (checkpoint / "modeling.py").write_text("raise SystemExit")
    laaciq.export(checkpoint, format="gptq", out=tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json", "export.json"} <= names
    assert not {"modeling.py", "plan.json"} & names
    # The entry that lets transformers refuse our own checkpoints stays behind.
    assert "transformers_weights" not in json.loads((tmp_path / "out/config.json").read_text())
    with pytest.raises(OutputConflict, match="finished result"):
        laaciq.export(checkpoint, format="compressed-tensors", out=tmp_path / "out")
    laaciq.export(checkpoint, format="compressed-tensors", out=tmp_path / "out", overwrite=True)
    with pytest.raises(OutputConflict, match=r"did not write \(modeling\.py\)"):
        laaciq.export(checkpoint, format="gptq", out=checkpoint, overwrite=True)
    with pytest.raises(BadOption, match="not a laaciq checkpoint"):
        laaciq.export(model, format="gptq", out=tmp_path / "new")
    with pytest.raises(BadOption, match=r"it should be .compressed-tensors., .gptq. or .gguf."):
        laaciq.export(checkpoint, format="awq", out=tmp_path / "new")


def test_bfloat16_models_are_told_what_it_does_to_scales(tmp_path):
    model = save_tiny("llama", tmp_path / "model", dtype=torch.bfloat16, **WIDE)
    result = laaciq.export(quantize(model, tmp_path / "q"), format="compressed-tensors", out=tmp_path / "out")
    assert "load it in float16 or float32" in result.notes[0]
