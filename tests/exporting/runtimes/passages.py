"""Passages of the built-in test text, and what our own checkpoint computes for them in float32."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from laaciq import reference
from laaciq.corpus import read_split

LANGUAGES, EACH = ("eng", "swa", "hin", "ara", "zho"), 4
NEW_TOKENS = 16


@lru_cache
def passages() -> list[str]:
    test = read_split("builtin", seed=0).select(LANGUAGES).test.spread(EACH)
    return [text for by_language in test.by_language.values() for text in by_language.texts]


@dataclass(frozen=True)
class Computed:
    """By passage: token ids, log-probabilities of all but the first, the greedy continuation of the first half."""

    ids: list[list[int]]
    logprobs: list[list[float]]
    continuations: list[list[int]]


@torch.inference_mode()
def compute(folder: Path | str) -> Computed:
    path = reference.path() if folder == "reference" else folder
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(path)
    computed = Computed([], [], [])
    end = tokenizer.eos_token_id
    for text in passages():
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        scores = model(ids).logits[0].log_softmax(-1)
        begun = half(ids[0].tolist())
        written = model.generate(torch.tensor([begun]), max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=end)
        computed.ids.append(ids[0].tolist())
        computed.logprobs.append(scores[:-1].gather(1, ids[0, 1:, None])[:, 0].tolist())
        computed.continuations.append(until(end, written[0, len(begun) :].tolist()))
    return computed


def half(ids: list[int]) -> list[int]:
    return ids[: len(ids) // 2]


def until(end: int, ids: list[int]) -> list[int]:
    """The ids before the end of the text."""
    return ids[: ids.index(end)] if end in ids else ids
