"""`generate`: text from a checkpoint with language tables, each prompt with the scales of its language."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from laaciq.corpus.identification import CLOSE_LANGUAGES, LanguageIdentifier
from laaciq.errors import BadOption
from laaciq.quantization.plan import Plan
from laaciq.quantization.switch import LanguageSwitch


def generate(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    *,
    languages: Sequence[str] | str | None = None,
    **options: Any,
) -> list[str]:
    """A continuation of every prompt, in order; options go to `model.generate`.

    `languages` is one language for all prompts, or one each; None detects them. A mixed batch is split by table. Prompts whose detected
    language has no table, or is unknown, use the shared scales. A given language without a table is an error.
    """
    if isinstance(prompts, str):
        raise BadOption(f"prompts must be a list: give [{prompts[:20]!r}]")
    switch = getattr(model, "language", None)
    if not isinstance(switch, LanguageSwitch):
        raise BadOption("this model was not loaded from a laaciq checkpoint: use its own generate")
    tables = _tables(switch, prompts, languages)
    continuations: dict[int, str] = {}
    for table in dict.fromkeys(tables):
        places = [place for place, used in enumerate(tables) if used == table]
        with switch.using(table):
            texts = _continue(model, tokenizer, [prompts[place] for place in places], options)
        continuations |= dict(zip(places, texts, strict=True))
    return [continuations[place] for place in range(len(prompts))]


def _tables(switch: LanguageSwitch, prompts: Sequence[str], languages: Sequence[str] | str | None) -> list[int | None]:
    if isinstance(languages, str):
        languages = [languages] * len(prompts)
    if languages is not None:
        if len(languages) != len(prompts):
            raise BadOption(f"{len(languages)} languages for {len(prompts)} prompts: give one each, or one for all")
        return [switch.table_of(name) for name in languages]
    if not switch.plan.tables:
        return [None] * len(prompts)
    return [_detected_table(switch.plan, prompt) for prompt in prompts]


def _detected_table(plan: Plan, prompt: str) -> int | None:
    """Table of the likeliest language or, if it has none, of one that the identifier confuses with it: Indonesian may look like Malay."""
    code = _identifier().likeliest(prompt)
    if code is None:
        return None
    close = next((group for group in CLOSE_LANGUAGES if code in group), set())
    tables = [plan.table_of(candidate) for candidate in (code, *sorted(close))]
    return next((table for table in tables if table is not None), None)


@cache
def _identifier() -> LanguageIdentifier:
    return LanguageIdentifier()


# Not inference mode: what layers make ready within it could not be used outside.
@torch.no_grad()
def _continue(model: Any, tokenizer: Any, prompts: list[str], options: dict[str, Any]) -> list[str]:
    """Prompts of different lengths are padded on the left, so that each ends where its continuation begins."""
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    batch = tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left").to(model.device)
    output = model.generate(**batch, pad_token_id=tokenizer.pad_token_id, **options)
    begun = 0 if model.config.is_encoder_decoder else batch["input_ids"].shape[1]
    return tokenizer.batch_decode(output[:, begun:], skip_special_tokens=True)
