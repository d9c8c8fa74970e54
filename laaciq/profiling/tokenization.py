"""Tokenization T: how finely a tokenizer splits each language, by counts alone."""

from __future__ import annotations

import re
from typing import Any

from laaciq.corpus import Passages, Texts
from laaciq.corpus.identification import UNSPACED, letters_in_script
from laaciq.errors import BrokenTexts
from laaciq.strict import StrictModel

PIVOT = "eng"
# SentencePiece's byte-fallback tokens.
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_REPLACEMENT = "\ufffd"


class Tokenization(StrictModel):
    """Fertility of one language's text, special tokens left out.

    - `words`: runs between spaces that hold a letter or a digit. None, as is `tokens_per_word`, where at least half of the letters are
      of a script written without spaces. Vietnamese puts spaces between syllables: its words are counted too high.
    - `against_english`: tokens over English's for the same passages. None where the texts are not parallel or have no English.
    - `fallback_share`: share of the tokens that stand for no whole character: unknown tokens, byte-fallback tokens `<0xNN>`, and
      tokens of a byte-level vocabulary that hold only pieces of characters (they decode to nothing but U+FFFD and spaces). A tokenizer
      that fuses neighbouring unknown characters into one token makes it look smaller.
    """

    language: str
    tokens: int
    words: int | None
    bytes: int
    tokens_per_word: float | None
    tokens_per_byte: float
    against_english: float | None
    fallback_share: float


def tokenization(tokenizer: Any, texts: Texts) -> list[Tokenization]:
    """Count every language's tokens, words and bytes, in the order of the texts."""
    encoded = {code: _encode(tokenizer, passages) for code, passages in texts.by_language.items()}
    english = len(encoded[PIVOT]) if texts.parallel and PIVOT in encoded else None
    return [_count(tokenizer, texts[code], ids, english) for code, ids in encoded.items()]


def word_count(text: str) -> int | None:
    """Runs between spaces with a letter or digit in them; None where spaces do not separate words."""
    if any(letters_in_script(text, script) >= 0.5 for script in UNSPACED):
        return None
    return sum(any(map(str.isalnum, run)) for run in text.split())


def is_fallback(tokenizer: Any, token: int) -> bool:
    """Whether a token stands for no whole character."""
    if token == tokenizer.unk_token_id or _BYTE_TOKEN.fullmatch(tokenizer.convert_ids_to_tokens(token)):
        return True
    # A space before a broken character is often part of its first token.
    return set(tokenizer.decode([token]).strip()) == {_REPLACEMENT}


def _encode(tokenizer: Any, passages: Passages) -> list[int]:
    encoded = tokenizer(list(passages.texts), add_special_tokens=False, verbose=False)["input_ids"] if passages else []
    ids = [token for passage in encoded for token in passage]
    if not ids:
        name = f"{passages.language.name} ({passages.language.code})"
        raise BrokenTexts(f"the passages in {name} have no token: give one or more that are not empty")
    return ids


def _count(tokenizer: Any, passages: Passages, ids: list[int], english: int | None) -> Tokenization:
    words = word_count(" ".join(passages.texts))
    fallback = {token for token in set(ids) if is_fallback(tokenizer, token)}
    return Tokenization(
        language=passages.language.code,
        tokens=len(ids),
        words=words,
        bytes=passages.byte_count,
        tokens_per_word=len(ids) / words if words else None,
        tokens_per_byte=len(ids) / passages.byte_count,
        against_english=len(ids) / english if english else None,
        fallback_share=sum(token in fallback for token in ids) / len(ids),
    )
