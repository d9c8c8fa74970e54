"""What TAB offers where a value is one of a few words. Nothing heavy is imported: a shell waits for the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import typer

from laaciq import backends, reference
from laaciq.corpus.named_sets import NAMED_SETS
from laaciq.options import BITS, BUILTIN, METHODS

Completer = Callable[[typer.Context, str], list[str]]
_NO_LANGUAGE = "documents"


def _languages(context: typer.Context) -> list[str]:
    """Codes of the texts that were given, where they are a folder, else of the built-in ones."""
    given = Path(context.params.get("texts") or "")
    named = {file.stem for file in given.glob("*.txt")} if given.is_dir() else set()
    folder = reference.texts_path() / "test"
    return sorted((named or {file.stem for file in folder.glob("*.txt")}) - {_NO_LANGUAGE})


def _one_of(words: Callable[[typer.Context], Iterable[str]]) -> Completer:
    def complete(context: typer.Context, incomplete: str) -> list[str]:
        return [word for word in words(context) if word.startswith(incomplete)]

    return complete


def _some_of(words: Callable[[typer.Context], Iterable[str]]) -> Completer:
    """Words with commas between: the last one is completed."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        before, comma, _ = incomplete.rpartition(",")
        named = before.split(",")
        return [f"{before}{comma}{word}" for word in words(context) if word not in named]

    return complete


def _fixed(*words: object) -> Callable[[typer.Context], Iterable[str]]:
    return lambda context: map(str, words)


# By the name of the option. Options of a Literal type need no entry: typer completes them.
COMPLETERS: dict[str, Completer] = {
    "method": _one_of(_fixed(*METHODS)),
    "methods": _some_of(_fixed(*METHODS, *backends.NAMES)),
    "texts": _one_of(_fixed(BUILTIN, *NAMED_SETS)),
    "group_size": _one_of(_fixed(32, 64, 128, "channel", "tensor")),
    "calibration": _one_of(lambda context: ["all", *_languages(context)]),
    "single_language": _one_of(_languages),
    **dict.fromkeys(("outlier_bits", "attention_bits", "embedding_bits"), _one_of(_fixed(*BITS))),
    **dict.fromkeys(("languages", "calibration_languages", "hold_out", "leave_out"), _some_of(_languages)),
    # Most commands take one number, `sweep` and `clipping` several.
    "bits": _some_of(_fixed(*BITS)),
}
