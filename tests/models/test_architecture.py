"""Facts known from the architectures' papers, detected on tiny models of them."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from laaciq import reference
from laaciq.models import LanguageModel, ModelFolder, find_model, load
from laaciq.models.architecture import architecture_facts
from tests.tiny import ARCHITECTURES, KIND, save_tiny

# norm, where it stands, positions
KNOWN = {
    "llama": ("RMSNorm", "pre", "rotary"),
    "qwen2": ("RMSNorm", "pre", "rotary"),
    "gemma3": ("RMSNorm", "pre and post", "rotary"),
    "mistral": ("RMSNorm", "pre", "rotary"),
    "gpt2": ("LayerNorm", "pre", "learned"),
    "opt": ("LayerNorm", "pre", "learned"),
    "gpt_neox": ("LayerNorm", "pre", "rotary"),
    "bloom": ("LayerNorm", "pre", "ALiBi"),
    "xglm": ("LayerNorm", "pre", "sinusoidal"),
    "bert": ("LayerNorm", "post", "learned"),
    "xlm-roberta": ("LayerNorm", "post", "learned"),
    # Its class is called a LayerNorm and does not subtract the mean.
    "mt5": ("RMSNorm", "pre", "relative"),
}
GROUPED = {"llama", "qwen2", "gemma3", "mistral"}
ACTIVATION = {
    **dict.fromkeys(("llama", "qwen2", "mistral"), "silu"),
    **dict.fromkeys(("gpt_neox", "bloom", "xglm", "bert", "xlm-roberta"), "gelu"),
    "gemma3": "gelu_pytorch_tanh",
    "gpt2": "gelu_new",
    "mt5": "gelu_new",
    "opt": "relu",
}
UNTIED = {"llama", "qwen2", "mistral", "gpt_neox"}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_facts(architecture, tmp_path):
    model = load(find_model(save_tiny(architecture, tmp_path)), device="cpu")
    facts = architecture_facts(model)
    assert (facts["norm"], facts["norm_position"], facts["positions"]) == KNOWN[architecture]
    assert facts["kind"] == KIND[architecture]
    assert facts["model_type"] == ("gemma3_text" if architecture == "gemma3" else architecture)
    assert facts["parameters"] == sum({p.data_ptr(): p.numel() for p in model.module.parameters()}.values())
    assert facts["blocks"] == (4 if architecture == "mt5" else 2)
    assert (facts["width"], facts["heads"]) == (32, 4)
    assert facts["key_value_heads"] == (2 if architecture in GROUPED else 4)
    # Four times the width is all that BLOOM knows.
    assert facts["feed_forward"] == (128 if architecture == "bloom" else 64)
    assert facts["activation"] == ACTIVATION[architecture]
    assert facts["vocabulary"] == len(model.tokenizer) == 400
    assert facts["tied_embeddings"] == (architecture not in UNTIED)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.module.modules())


def test_facts_are_those_of_a_profile():
    results = pytest.importorskip("laaciq.profiling.results")
    facts = architecture_facts(load(find_model("reference"), device="cpu"))
    assert results.Architecture(**facts).model_dump() == facts
    assert facts["blocks"] == AutoConfig.from_pretrained(reference.path()).num_hidden_layers


def test_the_place_of_the_norm_is_seen_and_not_looked_up(tmp_path):
    """OPT 350M alone of its family puts norms after; the model type does not say so."""
    model = load(find_model(save_tiny("opt", tmp_path, do_layer_norm_before=False)), device="cpu")
    assert architecture_facts(model)["norm_position"] == "post"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("architecture", ["llama", "bloom"])
def test_norms_are_told_apart_in_16_bits(architecture, dtype, tmp_path):
    """On an accelerator models keep their checkpoint's type."""
    model = load(find_model(save_tiny(architecture, tmp_path)), device="cpu")
    model.module.to(dtype)
    assert architecture_facts(model)["norm"] == KNOWN[architecture][0]


SMALL = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 50,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@pytest.mark.parametrize(
    "model_type, options, expected",
    [
        ("falcon", {"alibi": True}, {"positions": "ALiBi", "key_value_heads": 1}),
        (
            "falcon",
            {"new_decoder_architecture": True, "num_kv_heads": 2},
            {"positions": "rotary", "key_value_heads": 2},
        ),
        ("gptj", {"rotary_dim": 4}, {"positions": "rotary", "norm": "LayerNorm"}),
        # Norms without weights; norms at the end of each branch alone.
        ("olmo", {}, {"norm": "LayerNorm", "norm_position": "pre"}),
        ("olmo2", {}, {"norm": "RMSNorm", "norm_position": "post"}),
    ],
)
def test_architectures_that_nobody_told_us_about(model_type, options, expected, tmp_path):
    config = AutoConfig.for_model(model_type, **SMALL, **options)
    module = AutoModelForCausalLM.from_config(config).eval()
    facts = architecture_facts(LanguageModel(ModelFolder(model_type, tmp_path), "causal", module, None))
    assert {name: facts[name] for name in expected} == expected
