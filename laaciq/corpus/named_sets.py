"""Multilingual text sets by name: `flores200`, `ntrex128`, `udhr`, `belebele`, from the hub or, as `NAME:FOLDER`, from a copy.

Each becomes records with `language`, `text`, and where the set has them `passage`, `document` and `part`. Codes such as `swh_Latn` become the
ISO 639-3 codes that the other sources use (`swa`). Of a language in several scripts, countries or versions, one is read: in its usual
script, of no particular country, with the most passages.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import langcodes

from laaciq.corpus.hub_datasets import dataset_rows
from laaciq.corpus.languages import language
from laaciq.errors import BrokenTexts, UnknownLanguage

Row = dict[str, Any]
# Columns of NTREX-128 that are no language.
_NO_LANGUAGE = {"id", "index", "__index_level_0__"}


@dataclass(frozen=True)
class _Passage:
    """`tag` is the set's own code of the language, `version` distinguishes texts with the same tag, `passage` aligns languages."""

    tag: str
    text: str
    passage: str | None = None
    document: str | None = None
    part: str | None = None
    version: str = ""

    @property
    def variety(self) -> tuple[str, str]:
        return self.tag, self.version


@dataclass(frozen=True)
class NamedSet:
    """`repository` on the hub; `parts` are its splits, each with the part of ours that it becomes; `passages` reads the rows of one split."""

    repository: str
    parts: Mapping[str, str | None]
    passages: Callable[[Iterable[Row]], Iterator[_Passage]]
    files: Mapping[str, str] | None = None
    reading: Mapping[str, object] | None = None


def _flores(rows: Iterable[Row]) -> Iterator[_Passage]:
    """Sentences of one article have its address in common."""
    for row in rows:
        tag = f"{row['iso_639_3']}_{row['iso_15924']}"
        yield _Passage(tag, row["text"], str(row["id"]), row["url"], version=row.get("glottocode") or "")


def _ntrex(rows: Iterable[Row]) -> Iterator[_Passage]:
    """One column per language. The hub's copy does not have the documents of the sentences."""
    for number, row in enumerate(rows):
        for column, text in row.items():
            if column not in _NO_LANGUAGE:
                yield _Passage(column, text, str(number))


def _udhr(rows: Iterable[Row]) -> Iterator[_Passage]:
    """Sentences are not numbered, so languages are not aligned."""
    for row in rows:
        yield _Passage(f"{row['iso639-3']}_{row['iso15924']}", row["sentence"], version=row["id"])


def _belebele(rows: Iterable[Row]) -> Iterator[_Passage]:
    """A passage stands once per question. Articles with several passages are left out: nothing says which is which in another language."""
    texts: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        texts.setdefault((row["link"], row["dialect"]), {})[row["flores_passage"]] = None
    several = {link for (link, _), passages in texts.items() if len(passages) > 1}
    for (link, dialect), passages in texts.items():
        if link not in several:
            yield _Passage(dialect, next(iter(passages)), link, link)
    if several:
        warnings.warn(f"belebele: {len(several)} articles with more than one passage are left out", stacklevel=2)


NAMED_SETS = {
    # Maintained under this name; the older repository holds a script, which is not run.
    "flores200": NamedSet(
        "openlanguagedata/flores_plus",
        {"dev": "calibration", "devtest": "test"},
        _flores,
        {"dev": "dev/*", "devtest": "devtest/*"},
    ),
    "ntrex128": NamedSet("mteb/NTREX", {"test": None}, _ntrex),
    # Without the option, the code of Min Nan is read as "not a number".
    "udhr": NamedSet("cis-lmu/udhr-lid", {"test": None}, _udhr, {"test": "udhr-lid.csv"}, {"keep_default_na": False}),
    "belebele": NamedSet("facebook/belebele", {"test": None}, _belebele, {"test": "data/*.jsonl"}),
}


def is_named_set(source: str) -> bool:
    return source.partition(":")[0] in NAMED_SETS


def named_set_records(source: str) -> Iterator[Row]:
    """`NAME`, or `NAME:FOLDER` for a copy of the repository."""
    name, _, folder = source.partition(":")
    passages = [replace(passage, text=_one_line(passage.text)) for passage in _read(source, NAMED_SETS[name], folder)]
    passages = _usual_varieties([passage for passage in passages if passage.text], name)
    if passages and all(passage.passage is not None for passage in passages):
        passages = _aligned(passages, name)
    for passage in passages:
        yield {
            "language": _code(passage.tag),
            "text": passage.text,
            "passage": passage.passage,
            "document": passage.document,
            "part": passage.part,
        }


def _read(source: str, named: NamedSet, folder: str) -> Iterator[_Passage]:
    name = source.partition(":")[0]
    for split, part in named.parts.items():
        rows = dataset_rows(
            folder or named.repository,
            part=split,
            source=source,
            advice=f"give {name}:FOLDER with a copy of {named.repository}",
            files=named.files,
            reading=named.reading,
        )
        try:
            yield from (replace(passage, part=part) for passage in named.passages(rows))
        except KeyError as error:
            raise BrokenTexts(
                f"{source} has no column {error}: give {name}:FOLDER with a copy of {named.repository}"
            ) from None


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split("\n")).strip()


@cache
def _code(tag: str) -> str:
    """ISO 639-3; the usual variety of a language has the code of the language: `swh` and `arb` become `swa` and `ara`, `arz` stays."""
    return language(langcodes.standardize_tag(tag, macro=True)).code


def _usual_varieties(passages: list[_Passage], name: str) -> list[_Passage]:
    counts = Counter(passage.variety for passage in passages)
    unknown = sorted({tag for tag, _ in counts if not _is_language(tag)})
    varieties: dict[str, list[tuple[str, str]]] = {}
    for variety in counts:
        if variety[0] not in unknown:
            varieties.setdefault(_code(variety[0]), []).append(variety)
    chosen = {
        min(members, key=lambda variety: (_unusual(variety[0]), -counts[variety], variety))
        for members in varieties.values()
    }
    if unknown:
        warnings.warn(
            f"{name}: {', '.join(unknown)} are not languages with a known code and are left out", stacklevel=2
        )
    if others := sorted(
        {" ".join(filter(None, variety)) for variety in counts}
        - {" ".join(filter(None, v)) for v in chosen}
        - set(unknown)
    ):
        warnings.warn(f"{name}: one variety per language is read; left out: {', '.join(others)}", stacklevel=2)
    return [passage for passage in passages if passage.variety in chosen]


def _is_language(tag: str) -> bool:
    try:
        return bool(_code(tag))
    except (UnknownLanguage, langcodes.LanguageTagError):
        return False


def _unusual(tag: str) -> tuple[bool, bool]:
    """Whether the script is not the language's usual one, and whether the tag names a country or a spelling."""
    parsed = langcodes.Language.get(tag)
    usual = langcodes.Language.get(_code(tag)).maximize().script
    return parsed.maximize().script != usual, bool(parsed.territory or parsed.variants)


def _aligned(passages: list[_Passage], name: str) -> list[_Passage]:
    """Only languages with every passage, and no passage that is in calibration and, in some language with the same words, in test."""
    held: dict[str, set[tuple[str | None, str | None]]] = {}
    for passage in passages:
        held.setdefault(_code(passage.tag), set()).add((passage.part, passage.passage))
    whole = held["eng"] if "eng" in held else max(held.values(), key=len)
    short = sorted(code for code, ids in held.items() if not ids >= whole)
    if short:
        warnings.warn(
            f"{name}: languages without all {len(whole)} passages are left out: {', '.join(short)}", stacklevel=2
        )
    kept = [p for p in passages if _code(p.tag) not in short and (p.part, p.passage) in whole]
    tested = {(p.tag, p.text) for p in kept if p.part == "test"}
    shared = {p.passage for p in kept if p.part == "calibration" and (p.tag, p.text) in tested}
    if shared:
        warnings.warn(f"{name}: {len(shared)} calibration passages that are also in test are left out", stacklevel=2)
    return [p for p in kept if p.part != "calibration" or p.passage not in shared]
