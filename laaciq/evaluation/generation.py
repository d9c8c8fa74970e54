"""Greedy continuations of the same prompts by both models.

Generation uses no penalties, so that only the weights differ between the two models.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

import torch
from transformers import GenerationConfig

from laaciq.corpus import Passages
from laaciq.corpus.identification import UNSPACED, main_script
from laaciq.errors import BadOption, BrokenTexts
from laaciq.evaluation.continuations import Continuations, ContinuedPrompt
from laaciq.models import LanguageModel
from laaciq.scoring.sequences import prefix_tokens

# Prompts per language unless --prompts sets their number: an accelerator continues a hundred in the time that a CPU takes for a few.
PROMPTS, PROMPTS_ON_CPU = 100, 16
NEW_TOKENS = 48
# Prompts per batch.
_BATCH, _BATCH_ON_CPU = 32, 16


def default_prompts(device: str) -> int:
    """Prompts per language on a type of device."""
    return PROMPTS_ON_CPU if device == "cpu" else PROMPTS


def continue_prompts(
    original: LanguageModel,
    quantized: LanguageModel,
    passages: Passages,
    *,
    prompts: int = PROMPTS,
    new_tokens: int = NEW_TOKENS,
    chat: bool = False,
    advance: Callable[[int], None] = lambda prompts: None,
) -> Continuations:
    """Continuations of the beginnings of passages by both models. With `chat`, a prompt begins the answer in the model's chat template.
    `advance` receives the number of prompts that both have continued.
    """
    _check(original, quantized, passages, prompts, new_tokens)
    count = min(prompts, len(passages))
    # Spread over the text, so that the prompts are not of one document.
    texts = [passages.texts[k * len(passages) // count] for k in range(count)]
    script = main_script(" ".join(texts), passages.language.script)
    begun = [prompt_of(text, script) for text in texts]
    prefix = prefix_tokens(original.tokenizer, passages.language, chat=chat)
    prompts_as_tokens = _tokenized(original, quantized, begun, new_tokens, prefix)
    written: tuple[list[str], list[str]] = ([], [])
    size = _BATCH_ON_CPU if original.device.type == "cpu" else _BATCH
    for begin in range(0, count, size):
        batch = prompts_as_tokens[begin : begin + size]
        for model, continuations in zip((original, quantized), written, strict=True):
            continuations.extend(_continuations(model, batch, original, new_tokens))
        advance(len(batch))
    return Continuations(
        language=passages.language.code,
        script=script,
        prompts=[
            ContinuedPrompt(prompt=prompt, original=before, quantized=after)
            for prompt, before, after in zip(begun, *written, strict=True)
        ],
    )


def prompt_of(text: str, script: str) -> str:
    """The first half of the passage, cut at its last space or, in scripts without spaces, between two characters."""
    middle = max(1, len(text) // 2)
    space = -1 if script in UNSPACED else text.rfind(" ", middle // 2, middle + 1)
    if space > 0:
        return text[:space]
    # Vowel signs and tone marks stay with their letter.
    while middle < len(text) and unicodedata.category(text[middle]).startswith("M"):
        middle += 1
    return text[:middle]


# Generation


def _check(
    original: LanguageModel, quantized: LanguageModel, passages: Passages, prompts: int, new_tokens: int
) -> None:
    for model in (original, quantized):
        if model.kind != "causal":
            raise BadOption(
                f"{model.folder.name} is {model.kind}: only causal models continue a text; leave out --generate"
            )
    if prompts < 1 or new_tokens < 1:
        raise BadOption(f"{prompts} prompts with {new_tokens} new tokens: give at least 1 of each")
    if not passages.texts:
        raise BrokenTexts(
            f"no passage in {passages.language.name} ({passages.language.code}) to continue: give one or more"
        )


def _tokenized(
    original: LanguageModel, quantized: LanguageModel, prompts: list[str], new_tokens: int, start: list[int]
) -> list[list[int]]:
    """Prompts in the original's tokens, each after `start`. Of a long prompt only the end, so that the new tokens fit."""
    longest = min((bound for model in (original, quantized) if (bound := model.longest) is not None), default=None)
    room = None if longest is None else longest - new_tokens - len(start)
    if room is not None and room < 1:
        raise BadOption(
            f"{new_tokens} new tokens leave no room for a prompt: {original.folder.name} takes {longest} tokens in all; "
            f"give fewer"
        )
    bodies = [original.tokenizer(prompt, add_special_tokens=False)["input_ids"] for prompt in prompts]
    return [start + (body if room is None else body[-room:]) for body in bodies]


def _continuations(
    model: LanguageModel, prompts: list[list[int]], original: LanguageModel, new_tokens: int
) -> list[str]:
    """The text after each prompt. Both models use the original's tokenizer and end tokens."""
    tokenizer = original.tokenizer
    ends = _end_tokens(original)
    # Left, so that every prompt ends where the new tokens begin.
    width = max(map(len, prompts))
    padding = next((i for i in (tokenizer.pad_token_id, tokenizer.eos_token_id) if i is not None), 0)
    ids = torch.tensor([[padding] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    with _plain_generation(model.module):
        rows = model.module.generate(
            ids.to(model.device),
            attention_mask=mask.to(model.device),
            do_sample=False,
            num_beams=1,
            max_new_tokens=new_tokens,
            eos_token_id=ends or None,
            pad_token_id=padding,
        )
    new = [list(takewhile(lambda token: token not in ends, row)) for row in rows[:, width:].tolist()]
    return [tokenizer.decode(row, skip_special_tokens=True).strip() for row in new]


def _end_tokens(model: LanguageModel) -> list[int]:
    """The checkpoint's end tokens (chat models have several), else the tokenizer's."""
    candidates = (model.module.generation_config.eos_token_id, model.tokenizer.eos_token_id)
    ends = next((end for end in candidates if end is not None), None)
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)


@contextmanager
def _plain_generation(module: Any) -> Iterator[None]:
    """Ignore the checkpoint's generation settings: penalties would hide loops, and transformers warns of sampling flags."""
    kept = module.generation_config
    module.generation_config = GenerationConfig()
    try:
        yield
    finally:
        module.generation_config = kept
