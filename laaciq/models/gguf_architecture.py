"""A model's architecture in GGUF: the names of its tensors, the order of their rows, and the numbers that a runtime needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from laaciq.errors import BadOption
from laaciq.models.gguf_file import import_gguf

# Model types that GGUF knows under another name.
_OTHER_NAMES = {"gemma3_text": "gemma3", "gpt_neox": "gptneox", "mistral": "llama", "qwen3_moe": "qwen3moe"}
# Architectures with a sliding window in all blocks that llama.cpp does not compute.
_WINDOW_IGNORED = ("llama", "phi3")


@dataclass(frozen=True)
class GgufArchitecture:
    """The GGUF view of one model, from its configuration in transformers."""

    config: Any

    @property
    def name(self) -> str:
        """The architecture's name in GGUF."""
        return _OTHER_NAMES.get(self.config.model_type, self.config.model_type)

    @property
    def head_width(self) -> int:
        return getattr(self.config, "head_dim", None) or self.config.hidden_size // self.config.num_attention_heads

    def row_order(self, name: str) -> torch.Tensor | None:
        """Where the rows of a tensor come from; None where they stay.

        Rotary embeddings turn pairs of rows within a head. transformers pairs row i with row i + half; llama.cpp pairs neighbours in the
        architecture that it calls llama, and follows transformers in the others.
        """
        projection = next((p for p in ("q_proj", "k_proj") if f".{p}." in name), None)
        if self.name != "llama" or projection is None:
            return None
        heads = self.config.num_attention_heads if projection == "q_proj" else self.config.num_key_value_heads
        rows = torch.arange(heads * self.head_width).reshape(heads, 2, self.head_width // 2)
        return rows.transpose(1, 2).reshape(-1)

    def rotary_factors(self) -> torch.Tensor | None:
        """What llama.cpp divides the frequencies of rotary embeddings by, where they are scaled as in Llama 3.1; None where they are not.

        transformers does not read them and takes such a file as a model without scaling.
        """
        if self.config.rope_parameters.get("rope_type", "default") == "default":
            return None
        scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](self.config, torch.device("cpu"))
        halves = torch.arange(0, self.head_width, 2) / self.head_width
        return self.config.rope_parameters["rope_theta"] ** -halves / scaled

    def values(self, name: str, vector: torch.Tensor) -> torch.Tensor:
        """A vector as GGUF stores it: of Gemma's norms the 1 + w that they multiply by."""
        return vector + 1 if self.name == "gemma3" and name.endswith("norm.weight") else vector

    @property
    def context_length(self) -> int:
        """Positions that llama.cpp computes like transformers: at most one window if it ignores the window."""
        window = getattr(self.config, "sliding_window", None) if self.name in _WINDOW_IGNORED else None
        return min(self.config.max_position_embeddings, window or self.config.max_position_embeddings)

    def describe(self, writer: Any) -> None:
        """Write the numbers of the architecture."""
        config = self.config
        rotary = config.rope_parameters.get("full_attention", config.rope_parameters)
        writer.add_context_length(self.context_length)
        writer.add_embedding_length(config.hidden_size)
        writer.add_block_count(config.num_hidden_layers)
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count(config.num_attention_heads)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_key_length(self.head_width)
        writer.add_value_length(self.head_width)
        writer.add_rope_dimension_count(int(self.head_width * rotary.get("partial_rotary_factor", 1.0)))
        writer.add_rope_freq_base(rotary["rope_theta"])
        writer.add_vocab_size(config.vocab_size)
        if hasattr(config, "rms_norm_eps"):
            writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        else:
            writer.add_layer_norm_eps(config.layer_norm_eps)
        self._describe_family(writer, rotary)

    def _describe_family(self, writer: Any, rotary: dict[str, Any]) -> None:
        """What only one architecture has."""
        gguf, config = import_gguf(), self.config
        if self.name in ("gemma3", "cohere2"):
            writer.add_sliding_window(config.sliding_window)
        if self.name == "gemma3" and rotary.get("rope_type") == "linear":
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(rotary["factor"])
        if self.name == "cohere2":
            writer.add_logit_scale(config.logit_scale)
            writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
        if self.name == "phi3":
            writer.add_rope_scaling_orig_ctx_len(config.original_max_position_embeddings)
        if self.name == "qwen3moe":
            writer.add_expert_count(config.num_experts)
            writer.add_expert_used_count(config.num_experts_per_tok)
            writer.add_expert_feed_forward_length(config.moe_intermediate_size)


def tensor_names(model_type: str, blocks: int) -> Callable[[str], str]:
    """From the name of a tensor in transformers to that in GGUF, for any architecture that llama.cpp knows."""
    gguf = import_gguf()
    known = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
    architecture = _OTHER_NAMES.get(model_type, model_type)
    if architecture not in known:
        raise BadOption(f"GGUF does not know the architecture {model_type!r}: llama.cpp cannot run this model")
    names = gguf.get_tensor_name_map(known[architecture], blocks)

    def translate(name: str) -> str:
        translated = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if translated is None:
            raise BadOption(
                f"GGUF has no name for {name} in the architecture {architecture}: llama.cpp has no such layer"
            )
        return translated

    return translate
