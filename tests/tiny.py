"""Tiny random checkpoints of every supported architecture, made on the spot because tests have no model hub."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from laaciq import reference
from laaciq.corpus import Passages, language

_AUTO_CLASS = {
    "causal": AutoModelForCausalLM,
    "masked": AutoModelForMaskedLM,
    "encoder-decoder": AutoModelForSeq2SeqLM,
    "wrapped": AutoModelForImageTextToText,
}
_LANGUAGES = ("eng", "swa", "hin", "rus")
_VOCABULARY = 400
_WIDTH, _HEADS, _BLOCKS, _FEED_FORWARD, _POSITIONS = 32, 4, 2, 64, 128


@dataclass(frozen=True)
class _Recipe:
    """What sets one architecture apart: the tokens in `roles` get their ids in that order, `extra` ones after them."""

    roles: dict[str, str]
    config: dict[str, Any]
    kind: str = "causal"
    model_type: str | None = None
    template: str = "$A"
    extra: list[str] = field(default_factory=list)


_SHAPE = {
    "hidden_size": _WIDTH,
    "num_attention_heads": _HEADS,
    "num_hidden_layers": _BLOCKS,
    "intermediate_size": _FEED_FORWARD,
    "max_position_embeddings": _POSITIONS,
}
# Fewer key-value heads than heads, as the large models of these families have: projections differ in shape.
_GROUPED = _SHAPE | {"num_key_value_heads": _HEADS // 2}
_LLAMA_ROLES = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
_FAIRSEQ_ROLES = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
_GPT_ROLES = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}

_RECIPES = {
    "llama": _Recipe(_LLAMA_ROLES, _GROUPED, template="<s> $A"),
    # No bos token at all: what is put in front of the first token must come from elsewhere.
    "qwen2": _Recipe({"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}, _GROUPED),
    "gemma3": _Recipe(
        {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"},
        _GROUPED
        | {
            "head_dim": _WIDTH // _HEADS,
            "query_pre_attn_scalar": _WIDTH // _HEADS,
            # By default only every sixth block is global: at this depth none. The window must bite within the positions.
            "sliding_window_pattern": 2,
            "sliding_window": _POSITIONS // 2,
        },
        model_type="gemma3_text",
        template="<bos> $A",
    ),
    "mistral": _Recipe(_LLAMA_ROLES, _GROUPED, template="<s> $A"),
    "gpt2": _Recipe(
        _GPT_ROLES,
        {"n_embd": _WIDTH, "n_head": _HEADS, "n_layer": _BLOCKS, "n_inner": _FEED_FORWARD, "n_positions": _POSITIONS},
    ),
    "opt": _Recipe(
        {"pad_token": "<pad>", "bos_token": "</s>", "eos_token": "</s>", "unk_token": "<unk>"},
        {
            "hidden_size": _WIDTH,
            "num_attention_heads": _HEADS,
            "num_hidden_layers": _BLOCKS,
            "ffn_dim": _FEED_FORWARD,
            "max_position_embeddings": _POSITIONS,
        },
        template="</s> $A",
    ),
    "gpt_neox": _Recipe(_GPT_ROLES, _SHAPE),
    # ALiBi: the configuration knows no largest position, and feed-forward is always four times the width.
    "bloom": _Recipe(
        _LLAMA_ROLES | {"pad_token": "<pad>"}, {"hidden_size": _WIDTH, "n_head": _HEADS, "n_layer": _BLOCKS}
    ),
    "xglm": _Recipe(
        _FAIRSEQ_ROLES,
        {
            "d_model": _WIDTH,
            "attention_heads": _HEADS,
            "num_layers": _BLOCKS,
            "ffn_dim": _FEED_FORWARD,
            "max_position_embeddings": _POSITIONS,
        },
        template="</s> $A",
    ),
    "bert": _Recipe(
        {
            "pad_token": "[PAD]",
            "unk_token": "[UNK]",
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
            "mask_token": "[MASK]",
        },
        _SHAPE,
        kind="masked",
        template="[CLS] $A [SEP]",
    ),
    "xlm-roberta": _Recipe(
        _FAIRSEQ_ROLES | {"cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"},
        # Positions are counted from the padding id, 1, plus one; the first two rows of the table are never a token's.
        _SHAPE | {"max_position_embeddings": _POSITIONS + 2, "type_vocab_size": 1},
        kind="masked",
        template="<s> $A </s>",
    ),
    # Relative positions: no largest position here either.
    "mt5": _Recipe(
        {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"},
        {
            "d_model": _WIDTH,
            "d_kv": _WIDTH // _HEADS,
            "num_heads": _HEADS,
            "num_layers": _BLOCKS,
            "d_ff": _FEED_FORWARD,
            "decoder_start_token_id": 0,
        },
        kind="encoder-decoder",
        template="$A </s>",
        extra=[f"<extra_id_{index}>" for index in range(100)],
    ),
}

ARCHITECTURES: tuple[str, ...] = tuple(_RECIPES)
KIND: dict[str, str] = {architecture: recipe.kind for architecture, recipe in _RECIPES.items()}


def save_tiny(
    architecture: str, folder: Path, *, seed: int = 0, dtype: torch.dtype = torch.float32, **config_overrides: Any
) -> Path:
    """Write a complete checkpoint that the Auto classes load; overrides bear the architecture's own names."""
    recipe = _RECIPES[architecture]
    config = recipe.config | config_overrides
    return save_model(
        recipe.model_type or architecture, folder, config, like=architecture, kind=recipe.kind, seed=seed, dtype=dtype
    )


def save_model(
    model_type: str,
    folder: Path,
    config: dict[str, Any],
    *,
    like: str = "llama",
    kind: str = "causal",
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Path:
    """A model of any type, with the tokenizer of an architecture above."""
    tokenizer = _tokenizer(like)
    tokens = {"vocab_size": len(tokenizer)} | {
        f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("bos", "eos", "pad")
    }
    if "text_config" in config:
        config = config | {"text_config": tokens | config["text_config"]}
    # The caller's random stream stays where it was.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _AUTO_CLASS[kind].from_config(
            AutoConfig.for_model(model_type, **{**tokens, **config}), dtype=torch.float32
        )
        _roughen(model)
    # Cast last: one seed gives one model, rounded.
    model.to(dtype).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@torch.no_grad()
def _roughen(model: PreTrainedModel) -> None:
    """Draw weights under which nothing is degenerate: at the usual 0.02 every prediction is close to uniform."""
    for parameter in model.parameters():
        if parameter.ndim > 1:
            # Blocks as strong as the embeddings would wash the token out of bert's post-norm stream: all positions alike.
            parameter.normal_(std=0.25 if model.config.get_text_config().vocab_size in parameter.shape else 0.15)
        else:
            # Fresh biases are all 0 and norms all 1: a test would not notice that one was lost.
            parameter.add_(torch.randn_like(parameter), alpha=0.1)


@lru_cache
def _tokenizer(architecture: str) -> PreTrainedTokenizerFast:
    recipe = _RECIPES[architecture]
    specials = tuple(dict.fromkeys([*recipe.roles.values(), *recipe.extra]))
    backend = Tokenizer.from_str(_trained(specials))
    backend.post_processor = processors.TemplateProcessing(
        single=recipe.template,
        special_tokens=[
            (token, backend.token_to_id(token)) for token in set(recipe.template.split()) if token in specials
        ],
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, extra_special_tokens=recipe.extra, **recipe.roles)


@lru_cache
def _trained(specials: tuple[str, ...]) -> str:
    """Byte-level BPE, so that no text of any script gives an unknown token; as JSON, because a `Tokenizer` is mutable."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = reference.texts_path() / "calibration"
    tokenizer.train([str(texts / f"{language}.txt") for language in _LANGUAGES], trainer)
    return tokenizer.to_str()


def passages_of(texts: tuple[str, ...], code: str = "eng") -> Passages:
    """Texts of one language, each a document of its own."""
    return Passages(language(code), texts, tuple(map(str, range(len(texts)))))
