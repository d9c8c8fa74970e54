"""Why a model cannot be described by a GGUF file, from its configuration."""

from __future__ import annotations

from typing import Any

# Model types of transformers that are written.
ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "gemma3_text", "phi3", "cohere2")
# The only activation that llama.cpp computes for each; silu if it is not here.
_ACTIVATIONS = {"gemma3_text": "gelu_pytorch_tanh"}
# Scaled rotary embeddings that are written.
_SCALED = {"llama": "llama3", "gemma3_text": "linear"}
# Blocks of which llama.cpp takes the last to attend to everything, the others to a window.
_PERIODS = {"gemma3_text": 6, "cohere2": 4}


def obstacle(config: Any) -> str | None:
    """What in the configuration GGUF, or llama.cpp, does not support; None if nothing."""
    kind = config.model_type
    if kind not in ARCHITECTURES:
        return f"its architecture is {kind}, and only {', '.join(ARCHITECTURES)} are written"
    reasons = (
        _rotary(config),
        _activation(config),
        _biases(config),
        _window(config),
        _shapes(config),
        _experts(config),
    )
    return next((reason for reason in reasons if reason is not None), None)


def _rotary(config: Any) -> str | None:
    parameters = config.rope_parameters
    if "full_attention" in parameters:
        windowed = parameters.get("sliding_attention", parameters["full_attention"])
        if windowed.get("rope_type", "default") != "default" or windowed["rope_theta"] != 10000.0:
            return "its rotary embeddings in a sliding window are not those that llama.cpp assumes"
        parameters = parameters["full_attention"]
    rotary = parameters.get("rope_type", "default")
    if rotary not in ("default", _SCALED.get(config.model_type)):
        return f"its rotary embeddings are scaled ({rotary}), which is not written for the architecture {config.model_type}"
    return None


def _activation(config: Any) -> str | None:
    known = _ACTIVATIONS.get(config.model_type, "silu")
    used = getattr(config, "hidden_activation", None) or config.hidden_act
    return None if used == known else f"its activation is {used}, where the runtimes compute {known}"


def _biases(config: Any) -> str | None:
    # Qwen 2 always has them, and its configuration has no such entry.
    if getattr(config, "attention_bias", False) or getattr(config, "mlp_bias", False):
        return "its linear layers have biases, which a file of this architecture cannot declare"
    return None


def _window(config: Any) -> str | None:
    types = list(getattr(config, "layer_types", None) or ())
    if (period := _PERIODS.get(config.model_type)) is None:
        windowed = "sliding_attention" in types
        return (
            "it has attention in a sliding window, which the runtimes do not compute for this architecture"
            if windowed
            else None
        )
    assumed = ["full_attention" if (block + 1) % period == 0 else "sliding_attention" for block in range(len(types))]
    return None if types == assumed else f"not every {period}th block attends to everything, as llama.cpp assumes"


def _shapes(config: Any) -> str | None:
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if config.model_type == "cohere2" and width * config.num_attention_heads != config.hidden_size:
        return "its heads together are not as wide as its hidden states, as llama.cpp assumes"
    if config.model_type != "gemma3_text":
        return None
    # llama.cpp knows the 27B model, whose heads are scaled otherwise, by its number of blocks.
    scalar = config.hidden_size // config.num_attention_heads if config.num_hidden_layers == 62 else width
    if config.query_pre_attn_scalar != scalar:
        return f"it scales queries by {config.query_pre_attn_scalar}, where llama.cpp takes {scalar}"
    if config.final_logit_softcapping is not None or getattr(config, "attn_logit_softcapping", None) is not None:
        return "it caps its logits, which is not written for this architecture"
    return None


def _experts(config: Any) -> str | None:
    if config.model_type != "qwen3_moe":
        return None
    if not config.norm_topk_prob:
        return "it does not normalize the weights of the chosen experts, as llama.cpp does"
    return "not all its blocks have experts" if config.mlp_only_layers or config.decoder_sparse_step != 1 else None
