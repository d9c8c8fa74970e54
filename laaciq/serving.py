"""`generate`: text from a checkpoint with language tables, each prompt under the scales of its own language."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from laaciq.corpus import language
from laaciq.corpus.identification import LanguageIdentifier
from laaciq.errors import BadOption
from laaciq.quantization.switch import LanguageSwitch


def generate(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    *,
    languages: Sequence[str] | str | None = None,
    **options: Any,
) -> list[str]:
    """A continuation of every prompt, in the order given; options go to `model.generate`.

    `languages` is one language for all prompts, or one each; None detects them. A mixed batch is split by table. What is detected as
    a language without a table, or not detected, uses the shared scales; a declared language without a table is an error.
    """
    switch = getattr(model, "language", None)
    if not isinstance(switch, LanguageSwitch):
        raise BadOption("this model was not loaded from a laaciq checkpoint: use its own generate")
    tables = _tables(switch, prompts, languages)
    found: dict[int, str] = {}
    for table in dict.fromkeys(tables):
        places = [place for place, own in enumerate(tables) if own == table]
        with switch.using(table):
            texts = _continue(model, tokenizer, [prompts[place] for place in places], options)
        found |= dict(zip(places, texts, strict=True))
    return [found[place] for place in range(len(prompts))]


def _tables(switch: LanguageSwitch, prompts: Sequence[str], languages: Sequence[str] | str | None) -> list[int | None]:
    if isinstance(languages, str):
        languages = [languages] * len(prompts)
    if languages is not None:
        if len(languages) != len(prompts):
            raise BadOption(f"{len(languages)} languages for {len(prompts)} prompts: give one each, or one for all")
        return [switch.table_of(language(name).code) for name in languages]
    if not switch.plan.tables:
        return [None] * len(prompts)
    identifier = LanguageIdentifier()
    return [switch.plan.table_of(code) if (code := identifier.likeliest(prompt)) else None for prompt in prompts]


@torch.inference_mode()
def _continue(model: Any, tokenizer: Any, prompts: list[str], options: dict[str, Any]) -> list[str]:
    """Prompts of different lengths are padded on the left, so that each ends where its continuation begins."""
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    batch = tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left").to(model.device)
    output = model.generate(**batch, pad_token_id=tokenizer.pad_token_id, **options)
    begun = 0 if model.config.is_encoder_decoder else batch["input_ids"].shape[1]
    return tokenizer.batch_decode(output[:, begun:], skip_special_tokens=True)
