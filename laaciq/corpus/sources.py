"""Reading texts: the built-in set, a set of the hub by name, a folder, JSON Lines, Parquet or a `datasets` dataset.

- `builtin`: the passages that come with this package.
- `flores200`, `ntrex128`, `udhr`, `belebele`: see `laaciq.corpus.named_sets`.
- a folder of `<code>.txt`, UTF-8, one passage per line. Parallel when the line counts agree. `documents.txt`, one id per line, names
  the document of each line, and then the counts must agree. A folder with `calibration/` and `test/` of that form keeps this split.
- `FILE.jsonl`, `FILE.parquet`, `datasets:NAME`: records with `language` and `text`, and optionally `document`, `passage` (an id
  that aligns languages) and `part` (`calibration` or `test`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from laaciq import reference
from laaciq.corpus.hub_datasets import dataset_rows, first_line, optional_library
from laaciq.corpus.languages import language
from laaciq.corpus.named_sets import NAMED_SETS, is_named_set, named_set_records
from laaciq.corpus.split import CALIBRATION_SHARE, Split, divide_calibration, split
from laaciq.corpus.texts import Passages, Texts
from laaciq.engine.input_files import MOST_DATA_BYTES, Refusal, is_folder, is_text, is_there, read_text, require_file
from laaciq.engine.json_input import parse_object
from laaciq.errors import BrokenTexts, UnknownLanguage
from laaciq.options import BUILTIN

DOCUMENTS = "documents.txt"
# What is read of a record.
_ENTRIES = ("language", "text", "document", "passage", "part")
_REFUSAL = Refusal(BrokenTexts, "give text files in UTF-8")
_OBJECT = Refusal(BrokenTexts, "write one object with 'language' and 'text' per line")


def read_texts(source: str | Path = BUILTIN) -> Texts:
    """All the text of a source, its parts (if it has any) end to end."""
    parts = _read_parts(source)
    if len(parts) == 1:
        return next(iter(parts.values()))
    first, second = parts["calibration"], parts["test"]
    joined = {
        code: Passages(first[code].language, first[code].texts + p.texts, first[code].documents + p.documents)
        for code, p in second.by_language.items()
    }
    return Texts(first.name, joined, first.parallel and second.parallel)


def read_split(source: str | Path = BUILTIN, *, calibration_share: float = CALIBRATION_SHARE, seed: int = 0) -> Split:
    """Calibration, validation and test text of a source: the parts that it has, else a division by document."""
    parts = _read_parts(source)
    if len(parts) == 1:
        return split(next(iter(parts.values())), calibration_share=calibration_share, seed=seed)
    return divide_calibration(parts["calibration"], parts["test"], seed=seed)


def _read_parts(source: str | Path) -> dict[str, Texts]:
    """`{"all": texts}`, or the parts `calibration` and `test` in the same languages."""
    name = str(source)
    if name == BUILTIN:
        return _folder_parts(reference.texts_path(), name=BUILTIN)
    if name.startswith("datasets:"):
        return _record_parts(_dataset_records(name.removeprefix("datasets:")), name=name)
    if is_named_set(name):
        return _record_parts(named_set_records(name), name=name)
    path = Path(source)
    if name and is_folder(path):
        return _folder_parts(path, name=name)
    if not name or not is_there(path):
        raise BrokenTexts(
            f"no texts at {name}: give 'builtin', {', '.join(NAMED_SETS)}, a folder, a .jsonl or .parquet file, or datasets:NAME"
        )
    if path.suffix in (".jsonl", ".json"):
        return _record_parts(_json_records(path), name=name)
    if path.suffix == ".parquet":
        return _record_parts(_parquet_records(path), name=name)
    raise BrokenTexts(f"{name} is not a kind of text file that laaciq reads: give a folder, .jsonl or .parquet")


# Folders


def _folder_parts(folder: Path, *, name: str) -> dict[str, Texts]:
    if not (folder / "test").is_dir():
        return {"all": _read_folder(folder, name=name)}
    if not (folder / "calibration").is_dir():
        raise BrokenTexts(f"{folder} has test/ but no calibration/: add it, or give {folder / 'test'} itself")
    parts = ("calibration", "test")
    return _checked_parts({part: _read_folder(folder / part, name=name, within=folder) for part in parts})


def _read_folder(folder: Path, *, name: str, within: Path | None = None) -> Texts:
    """`within` is the folder that links must not lead out of, `folder` itself by default."""
    within = within or folder
    files = sorted(path for path in folder.glob("*.txt") if path.name != DOCUMENTS)
    if not files:
        raise BrokenTexts(f"{folder} holds no <code>.txt: put one file per language there, such as eng.txt")
    lines: dict[str, list[str]] = {}
    for path in files:
        try:
            code = language(path.stem).code
        except UnknownLanguage as error:
            raise UnknownLanguage(f"{path}: {error}") from None
        if code in lines:
            raise BrokenTexts(f"{folder} has two files for {code}: {path.name} is the second; keep one")
        lines[code] = _read_lines(path, within=within)
        if not any(lines[code]):
            raise BrokenTexts(f"{path} is empty: write one passage per line, or remove it")
    counts = {code: len(passages) for code, passages in lines.items()}
    documents = _read_lines(folder / DOCUMENTS, within=within) if is_there(folder / DOCUMENTS) else None
    if documents is not None:
        for code, count in counts.items():
            if count != len(documents):
                raise BrokenTexts(
                    f"{folder} is misaligned: {code}.txt has {count} lines and {DOCUMENTS} {len(documents)}; "
                    f"line k of every file must be the same passage"
                )
    parallel = len(lines) > 1 and len(set(counts.values())) == 1
    if not parallel and documents is None:
        lines = {code: [line for line in passages if line] for code, passages in lines.items()}
    for code, passages in lines.items():
        if "" in passages:
            raise BrokenTexts(
                f"{folder} is misaligned: line {passages.index('') + 1} of {code}.txt is empty; "
                f"line k of every file must be the same passage"
            )
    return _texts(name, lines, documents, parallel=parallel)


def _read_lines(path: Path, *, within: Path | None = None) -> list[str]:
    """Lines without surrounding white space; empty lines at the end do not count."""
    lines = [line.strip() for line in read_text(path, _REFUSAL, within=within, most=MOST_DATA_BYTES).split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _texts(name: str, lines: dict[str, list[str]], documents: list[str] | None, *, parallel: bool) -> Texts:
    """Without document ids every passage is a document of one passage, named by its content and not by its place in the file."""
    if documents is None and parallel:
        pivot = lines["eng"] if "eng" in lines else next(iter(lines.values()))
        documents = [_content_name(line) for line in pivot]
    by_language = {}
    for code, passages in lines.items():
        names = documents if documents is not None else [_content_name(line) for line in passages]
        by_language[code] = Passages(language(code), tuple(passages), tuple(names))
    return Texts(name, by_language, parallel)


def _content_name(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# Records


def _record_parts(records: Iterable[dict[str, Any]], *, name: str) -> dict[str, Texts]:
    by_part: dict[str, list[dict[str, Any]]] = {}
    for number, record in enumerate(records, start=1):
        _check_record(record, f"{name}, record {number}")
        by_part.setdefault(record.get("part") or "all", []).append(record)
    if not by_part:
        raise BrokenTexts(f"{name} holds no records: each needs 'language' and 'text'")
    if set(by_part) not in ({"all"}, {"calibration", "test"}):
        raise BrokenTexts(f"{name}: 'part' must be 'calibration' or 'test' in every record, or in none")
    return _checked_parts({part: _record_texts(members, name) for part, members in by_part.items()})


def _check_record(record: object, where: str) -> None:
    if not isinstance(record, dict):
        raise BrokenTexts(f"{where} is not an object with 'language' and 'text'")
    for key in ("language", "text"):
        if not isinstance(record.get(key), str) or not record[key].strip():
            raise BrokenTexts(f"{where} has no {key!r}: every record needs 'language' and 'text', both not empty")
    for key in _ENTRIES:
        value = record.get(key)
        if isinstance(value, bool) or not isinstance(value, str | int | None) or not is_text(str(value)):
            raise BrokenTexts(f"{where} has the {key} {value!r}: give a string or a whole number")


def _record_texts(records: list[dict[str, Any]], name: str) -> Texts:
    grouped: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        try:
            code = language(record["language"]).code
        except UnknownLanguage as error:
            raise UnknownLanguage(f"{name}: {error}") from None
        grouped.setdefault(code, []).append(record)
    grouped = dict(sorted(grouped.items()))
    aligned = {
        code: [str(r["passage"]) for r in members if r.get("passage") is not None] for code, members in grouped.items()
    }
    first = sorted(next(iter(aligned.values())))
    parallel = (
        len(grouped) > 1
        and len(set(first)) == len(first)
        and all(sorted(ids) == first and len(ids) == len(grouped[code]) for code, ids in aligned.items())
    )
    by_language = {}
    for code, unordered in grouped.items():
        members = sorted(unordered, key=lambda record: str(record["passage"])) if parallel else unordered
        texts = tuple(" ".join(record["text"].split("\n")).strip() for record in members)
        fallback = [str(r["passage"]) for r in members] if parallel else [_content_name(text) for text in texts]
        stated = [r.get("document") for r in members]
        documents = tuple(str(d) if d not in (None, "") else other for d, other in zip(stated, fallback, strict=True))
        by_language[code] = Passages(language(code), texts, documents)
    return Texts(name, by_language, parallel)


def _json_records(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(_read_lines(path), start=1):
        if line:
            yield parse_object(line, f"{path}, line {number},", _OBJECT)


def _parquet_records(path: Path) -> Iterator[dict[str, Any]]:
    parquet = optional_library("pyarrow.parquet", extra="parquet")
    require_file(path, _REFUSAL, most=MOST_DATA_BYTES)
    try:
        file = parquet.ParquetFile(path)
        yield from file.read(columns=[name for name in file.schema_arrow.names if name in _ENTRIES]).to_pylist()
    except Exception as error:  # pyarrow raises many kinds of errors on damaged files
        raise BrokenTexts(
            f"{path} is not a Parquet file that can be read ({first_line(error)}): write it again"
        ) from None


def _dataset_records(name: str) -> Iterator[dict[str, Any]]:
    """`NAME`, `NAME:SPLIT` or `NAME:SPLIT:CONFIGURATION`; NAME may be a folder."""
    path, _, rest = name.partition(":")
    part, _, configuration = rest.partition(":")
    return dataset_rows(
        path,
        part=part or "test",
        configuration=configuration or None,
        source=f"datasets:{name}",
        advice="give datasets:NAME:SPLIT of one that can be loaded",
    )


# Parts


def _checked_parts(parts: dict[str, Texts]) -> dict[str, Texts]:
    """Parts must have the same languages and no passage in common."""
    if len(parts) == 1:
        return parts
    calibration, test = parts["calibration"], parts["test"]
    if missing := set(calibration.languages) ^ set(test.languages):
        raise BrokenTexts(f"{test.name}: {', '.join(sorted(missing))} is in calibration or in test but not in both")
    for code, passages in test.by_language.items():
        if common := set(passages.texts) & set(calibration[code].texts):
            raise BrokenTexts(
                f"{test.name}: a passage of {code} is in calibration and in test; remove one: {min(common)[:60]!r}"
            )
    return parts
