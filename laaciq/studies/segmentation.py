"""do(T): the same text in more tokens. Tokens are split at random into shorter ones of the vocabulary, as BPE dropout does (Provilkov et al.
2020), but with a seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

from transformers import BatchEncoding

from laaciq.engine.workers import ThisProcess
from laaciq.errors import BadOption
from laaciq.models import LanguageModel
from laaciq.trials.session import Session

_PROBE = "The first rain fell on 12 March."
# How a text is tokenized that is to be scored.
_SCORED = {"add_special_tokens": False, "return_offsets_mapping": True}


class SplitTokens:
    """A tokenizer that splits every token with the probability `rate`, and the parts again, where both parts are tokens too.

    Only texts that are to be scored are split: those that are tokenized with their offsets. All else is the tokenizer's own.
    """

    def __init__(self, tokenizer: Any, rate: float, seed: int, spared: frozenset[str] = frozenset()) -> None:
        """Texts that are `spared` stay as they are."""
        self._tokenizer, self._rate, self._seed, self._spared = tokenizer, rate, seed, spared
        self._vocabulary: dict[str, int] = tokenizer.get_vocab()
        self._special = set(tokenizer.all_special_tokens)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def __call__(self, text: Any, **options: Any) -> Any:
        encoding = self._tokenizer(text, **options)
        if not options.get("return_offsets_mapping") or not isinstance(text, str) or text in self._spared:
            return encoding
        generator = random.Random(f"{self._seed}:{self._rate}:{text}")
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        words: list[int | None] = []
        tokens = self._tokenizer.convert_ids_to_tokens(encoding["input_ids"])
        for token, identity, (start, end), word in zip(
            tokens, encoding["input_ids"], encoding["offset_mapping"], encoding.word_ids(0), strict=True
        ):
            parts = (
                [identity] if token in self._special else [self._vocabulary[p] for p in self._split(token, generator)]
            )
            ids += parts
            # Parts may be bytes of a character: all characters of a token belong to the last of them.
            offsets += [(start, start)] * (len(parts) - 1) + [(start, end)]
            words += [word] * len(parts)
        return _Encoding(ids, offsets, words)

    def _split(self, token: str, generator: random.Random) -> list[str]:
        if len(token) == 1 or generator.random() >= self._rate:
            return [token]
        places = [i for i in range(1, len(token)) if token[:i] in self._vocabulary and token[i:] in self._vocabulary]
        if not places:
            return [token]
        place = generator.choice(places)
        return self._split(token[:place], generator) + self._split(token[place:], generator)


class _Encoding(BatchEncoding):
    """One text's tokens."""

    def __init__(self, ids: list[int], offsets: list[tuple[int, int]], words: list[int | None]) -> None:
        super().__init__({"input_ids": ids, "offset_mapping": offsets})
        self._words = words

    def word_ids(self, batch_index: int = 0) -> list[int | None]:
        return self._words


def split_tokens(
    model: LanguageModel, rate: float, *, seed: int, texts: Iterable[str] = (_PROBE,), spared: Iterable[str] = ()
) -> LanguageModel:
    """The model with a tokenizer that splits tokens, but not those of `spared` texts. Raises an error if that would change the texts."""
    tokenizer = SplitTokens(model.tokenizer, rate, seed, frozenset(spared))
    whole = SplitTokens(model.tokenizer, 1.0, seed)
    pairs = [[t(text, **_SCORED)["input_ids"] for t in (model.tokenizer, whole)] for text in texts]
    same_text = all(model.tokenizer.decode(plain) == model.tokenizer.decode(parts) for plain, parts in pairs)
    # Not in every language: rare ones may be in single bytes already.
    if not same_text or all(len(plain) == len(parts) for plain, parts in pairs):
        raise BadOption(
            f"the tokenizer of {model.folder.name} has no shorter tokens that spell the same text: do(T) needs a model with "
            "byte-pair encoding or unigrams"
        )
    return replace(model, tokenizer=tokenizer)


def split_session(session: Session, rate: float, *, spared: str | None = None) -> Session:
    """A session on the same text in more tokens, but for that of a `spared` language, with results of its own. Other processes would read the
    text as it was: it uses none.
    """
    split = session.split
    other = session.on(split, within=f"tokens-{rate:g}{f'-but-{spared}' if spared else ''}")
    other.workers = ThisProcess()
    texts = [passages.texts[0] for passages in split.test.by_language.values()]
    kept = [
        part[spared].texts for part in (split.calibration, split.validation, split.test) if spared in part.languages
    ]
    other.__dict__["original"] = split_tokens(
        session.original, rate, seed=session.options.seed, texts=texts, spared=chain.from_iterable(kept)
    )
    return other
