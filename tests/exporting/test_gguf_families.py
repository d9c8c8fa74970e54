"""The numbers of each family in a GGUF file, and what a file cannot describe. In llama.cpp itself: tests/exporting/runtimes."""

import re

import gguf
import pytest
import torch
from transformers import AutoModelForCausalLM

from laaciq.exporting.gguf import FILE, write_gguf
from laaciq.exporting.gguf_obstacles import obstacle
from laaciq.models.gguf_architecture import GgufArchitecture
from tests.exporting.families import CONFIGS, family_config, save_family


@pytest.mark.parametrize("model_type", ["mistral", "gemma3_text", "qwen3_moe"])
@torch.inference_mode()
def test_transformers_reads_the_same_model(model_type, tmp_path):
    folder = save_family(model_type, tmp_path / "model")
    assert write_gguf(folder, tmp_path / "gguf").for_transformers
    ids = torch.arange(5, 105)[None]
    read = AutoModelForCausalLM.from_pretrained(tmp_path / "gguf", gguf_file=FILE, dtype=torch.float32)
    original = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for module in original.modules():
        # Matrices are rounded to float16, vectors are not.
        for parameter in module.parameters(recurse=False):
            parameter.data = parameter.half().float() if parameter.ndim > 1 else parameter
    torch.testing.assert_close(read(ids).logits, original(ids).logits, rtol=1e-3, atol=1e-3)


def test_cohere_2_is_for_llama_cpp(tmp_path):
    assert not write_gguf(save_family("cohere2", tmp_path / "model"), tmp_path / "gguf").for_transformers
    fields = gguf.GGUFReader(tmp_path / "gguf" / FILE).fields
    assert fields["cohere2.logit_scale"].contents() == 0.0625
    assert fields["cohere2.attention.sliding_window"].contents() == 48


def test_context_is_one_window_where_llama_cpp_ignores_it():
    assert GgufArchitecture(family_config("mistral", sliding_window=48)).context_length == 48
    assert GgufArchitecture(family_config("mistral")).context_length == 128
    assert GgufArchitecture(family_config("cohere2")).context_length == 128


@pytest.mark.parametrize("model_type", CONFIGS)
def test_nothing_stands_against_these(model_type):
    assert obstacle(family_config(model_type)) is None


@pytest.mark.parametrize(
    ("model_type", "changes", "reason"),
    [
        ("gemma3_text", {"query_pre_attn_scalar": 32}, "scales queries by 32, where llama.cpp takes 256"),
        ("gemma3_text", {"layer_types": ["full_attention"] * 6}, "not every 6th block"),
        ("gemma3_text", {"final_logit_softcapping": 30.0}, "caps its logits"),
        ("gemma3_text", {"hidden_activation": "silu"}, "activation is silu"),
        ("cohere2", {"head_dim": 32}, "not as wide as its hidden states"),
        ("cohere2", {"attention_bias": True}, "have biases"),
        ("qwen3_moe", {"norm_topk_prob": False}, "does not normalize"),
        ("qwen3_moe", {"mlp_only_layers": [0]}, "not all its blocks have experts"),
        (
            "mistral",
            {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}},
            r"scaled \(linear\)",
        ),
    ],
)
def test_what_llama_cpp_would_compute_otherwise_is_refused(model_type, changes, reason):
    assert re.search(reason, obstacle(family_config(model_type, **changes)))
