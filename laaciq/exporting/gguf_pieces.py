"""A SentencePiece vocabulary in a GGUF file, from the BPE model that `tokenizers` makes of it (Llama 2, Mistral, Phi-3, Gemma).

SentencePiece joins the two neighbours whose whole has the best score. The BPE model lists instead every pair that makes a token, best whole
first. So a token's score is minus its place in that list.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from laaciq.errors import BadOption

_SPACE = "\u2581"


def is_sentencepiece(described: dict[str, Any]) -> bool:
    """True if tokenizer.json describes BPE over characters, with bytes for those that are unknown."""
    model = described["model"]
    return model["type"] == "BPE" and bool(model.get("byte_fallback"))


def scores(model: dict[str, Any]) -> dict[str, float]:
    """The score of every token that is made of two others. An error if no scores give the same tokens as the list of pairs."""
    vocabulary = model["vocab"]
    pairs = [tuple(pair.split(" ", 1)) if isinstance(pair, str) else tuple(pair) for pair in model["merges"]]
    places: dict[str, int] = {}
    last = None
    for left, right in pairs:
        whole = left + right
        if whole != last and whole in places:
            raise _unlike(whole)
        places.setdefault(whole, len(places))
        last = whole
    listed = set(pairs)
    for whole in places:
        for cut in range(1, len(whole)):
            pair = (whole[:cut], whole[cut:])
            if pair[0] in vocabulary and pair[1] in vocabulary and pair not in listed:
                raise _unlike(whole)
    return {whole: -float(place) for whole, place in places.items()}


def _unlike(token: str) -> BadOption:
    return BadOption(
        f"this tokenizer does not merge {token!r} as SentencePiece does, which llama.cpp would use: give another --format"
    )


def adds_space(normalizers: Iterable[dict[str, Any]], splits: Iterable[dict[str, Any]]) -> bool:
    """Whether a space is put before a text. An error if the text is changed in a way that SentencePiece does not."""
    before, replaced = False, False
    for step in normalizers:
        if step["type"] == "Prepend" and step["prepend"] == _SPACE:
            before = True
        elif step["type"] == "Replace" and step["pattern"] == {"String": " "} and step["content"] == _SPACE:
            replaced = True
        else:
            raise BadOption(f"llama.cpp does not know the step {step['type']} of this tokenizer: give another --format")
    for step in splits:
        if step["type"] == "Metaspace" and step["replacement"] == _SPACE and not step.get("split", True):
            before, replaced = step.get("prepend_scheme", "always") != "never", True
        # Gemma splits at spaces, of which none are left.
        elif not (step["type"] == "Split" and step["pattern"] == {"String": " "} and replaced):
            raise BadOption("llama.cpp does not know how this tokenizer splits text: give another --format")
    if not replaced:
        raise BadOption("this tokenizer does not mark spaces as SentencePiece does: give another --format")
    return before


def is_byte(token: str) -> bool:
    """`<0x0A>` and the like."""
    return len(token) == 6 and token.startswith("<0x") and token.endswith(">")


def with_spaces(token: str) -> str:
    """A token that is looked up before spaces are marked."""
    return token.replace(_SPACE, " ")
