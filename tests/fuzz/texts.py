"""Mutations of texts, recipes and GGUF files."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from random import Random
from typing import Any

import pyarrow
import pyarrow.parquet

from tests.fuzz.mutations import STRANGE_STRINGS, Mutation, remove, replace

_BOMB = (
    "a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nbits: [*b, *b, *b, *b, *b, *b, *b]\n"
)
_WRONG_RECIPES = {
    "aliases": _BOMB,
    "an object": "bits: !!python/object/apply:os.system ['true']\n",
    "a list": "- bits\n- 3\n",
    "a number as key": "3: bits\n",
    "nesting": "bits: " + "[" * 3000 + "]" * 3000,
    "an unknown option": "bitz: 3\n",
    "a key twice": "bits: 3\nbits: 4\n",
    "NaN": "budget: .nan\n",
    "no date": "bits: 2020-99-99\n",
    "a set": "bits: !!set {a, b}\n",
    "a mapping": "languages: {eng: 1}\n",
    "a tab": "bits:\n\t- 3\n",
    "an anchor to itself": "bits: &a [*a]\n",
    "two documents": "bits: 3\n---\nbits: 4\n",
    "control characters": "bits: \x01\n",
    "no words": "bits: x\n",
}


def recipe(path: Path, random: Random) -> Mutation:
    name = random.choice(sorted(_WRONG_RECIPES))
    replace(path, _WRONG_RECIPES[name].encode())
    return Mutation(f"recipe with {name}", wrong=True)


def recipe_value(path: Path, random: Random) -> Mutation:
    key = random.choice(("bits", "budget", "method", "languages", "texts", "group-size", "protect", "keep", "seed"))
    value: Any = random.choice((*STRANGE_STRINGS, *range(-3, 70, 7), 1e308, [], ["eng", 3], None, True))
    replace(path, json.dumps({key: value}).encode())
    return Mutation("recipe with another value")


def cells(path: Path, random: Random) -> Mutation:
    """Of a CSV table: what a spreadsheet or a rater may do to it."""
    rows = path.read_text(encoding="utf-8").splitlines()
    at = random.randrange(len(rows))
    changes = {
        "a row twice": [*rows, rows[-1]],
        "a row less": rows[:-1],
        "a cell more": [*rows[:at], f"{rows[at]},x", *rows[at + 1 :]],
        "a quotation without an end": [*rows[:at], f'"{rows[at]}', *rows[at + 1 :]],
        "another choice": [*rows[:-1], f"{rows[-1].partition(',')[0]},{random.choice(('', 'C', '=1+1', 'AB', '1'))}"],
        "another heading": ["item;choice", *rows[1:]],
        "a long cell": [*rows[:-1], f"{'a' * 200_000},A"],
    }
    name = random.choice(sorted(changes))
    replace(path, "\n".join(changes[name]).encode())
    return Mutation(name, wrong=True)


def logged(path: Path, random: Random) -> Mutation:
    """Of an item that lm-evaluation-harness logged: no answer, or one that is neither right nor wrong."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    changed: Any = random.choice(
        ({"acc": 0.5}, {"acc": "1"}, {"acc": None}, {"acc": [1]}, {"doc_id": 77}, {"doc_hash": 3})
    )
    rows[random.randrange(len(rows))] |= changed
    replace(path, "\n".join(map(json.dumps, rows)).encode())
    return Mutation(f"{changed} in an item", wrong=True)


def lines(path: Path, random: Random) -> Mutation:
    """Of one language: other lines, that still may be a text."""
    content = path.read_text(encoding="utf-8").split("\n")
    kind = random.choice(("blank", "long", "nul", "strange", "fewer", "crlf", "bom", "same"))
    at = random.randrange(len(content))
    if kind == "blank":
        content[at] = "  "
    elif kind == "long":
        content[at] = "word " * 20_000  # scored in seconds: a passage may be long
    elif kind == "nul":
        content[at] = "a\0b\x1b[2J\x7f"
    elif kind == "strange":
        content[at] = random.choice(STRANGE_STRINGS)
    elif kind == "fewer":
        content = content[: at + 1]
    elif kind == "same":
        content = [content[0]] * len(content)
    text = ("\r\n" if kind == "crlf" else "\n").join(content)
    replace(path, (("﻿" if kind == "bom" else "") + text).encode())
    return Mutation(f"lines: {kind}")


def folder_of_texts(path: Path, random: Random) -> Mutation:
    """Files that do not go together; `path` is one language's."""
    folder, kind = path.parent, random.choice(("twice", "unknown", "documents", "empty", "test", "name"))
    if kind == "twice":
        (folder / "en.txt").write_text("one\ntwo\n")
        (folder / "eng.txt").touch()
    elif kind == "unknown":
        (folder / random.choice(("qqq.txt", "english language.txt", "zxx.txt"))).write_text("text\n")
    elif kind == "documents":
        (folder / "documents.txt").write_text("a\n")
    elif kind == "empty":
        replace(path, b" \n\n")
    elif kind == "test":
        (folder / "test").mkdir()
    else:
        path.rename(folder / "\udcff.txt")
    return Mutation(f"texts: {kind}", wrong=True)


def records(path: Path, random: Random) -> Mutation:
    """One record of a .jsonl or .parquet file that is none."""
    rows: list[Any] = read_records(path)
    at, kind = random.randrange(len(rows)), random.choice(("language", "text", "part", "passage", "document", "empty"))
    values = {
        "language": ("", None, "qqq", 3),
        "text": ("", " \n ", None, 3),
        "part": ("test", "train"),
        "passage": ([1], 0.5, True),
        "document": ([1], 0.5, {"a": 1}),
        "empty": ("",),
    }
    if kind == "empty":
        rows = []
    else:
        rows[at][kind] = random.choice(values[kind])
    write_records(path, rows)
    return Mutation(f"records: {kind}", wrong=True)


def column(path: Path, random: Random) -> Mutation:
    """A column of another type, or none."""
    rows = read_records(path)
    name = random.choice(("language", "text"))
    new = random.choice((3, [1, 2], {"a": 1}, None, b"bytes" if path.suffix == ".parquet" else 0.5))
    for row in rows:
        row[name] = new
        if new is None:
            del row[name]
    write_records(path, rows)
    return Mutation(f"no strings in {name}", wrong=True)


def read_records(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path).to_pylist()
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_records(path: Path, rows: list[dict[str, Any]]) -> None:
    remove(path)
    if path.suffix == ".parquet":
        names = {name for row in rows for name in row}
        rows = [dict.fromkeys(names) | row for row in rows]
        try:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        except pyarrow.ArrowException:  # a column of two types cannot be written: no column then
            pyarrow.parquet.write_table(pyarrow.table({"other": [1]}), path)
    else:
        path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows), encoding="utf-8")


# GGUF

_EPSILON = b"llama.attention.layer_norm_rms_epsilon"


def gguf_header(path: Path, random: Random) -> Mutation:
    """Counts, lengths and numbers that cannot be."""
    content = bytearray(path.read_bytes())
    kind = random.choice(("magic", "version", "tensors", "keys", "epsilon", "key", "architecture"))
    huge = random.choice((2**63, 2**31, 10**6))
    if kind == "magic":
        content[:4] = b"GGML"
    elif kind == "version":
        content[4:8] = struct.pack("<I", random.choice((0, 1, 99, 3 << 24)))
    elif kind == "tensors":
        content[8:16] = struct.pack("<Q", huge)
    elif kind == "keys":
        content[16:24] = struct.pack("<Q", huge)
    elif kind == "key":
        content[24:32] = struct.pack("<Q", huge)
    elif kind == "epsilon":
        at = content.index(_EPSILON) + len(_EPSILON) + 4
        content[at : at + 4] = struct.pack("<f", random.choice((float("nan"), float("inf"))))
    else:
        at = content.index(b"general.architecture")
        content[at : at + 20] = b"general.architecturX"
    replace(path, bytes(content))
    return Mutation(f"another {kind} in the header", wrong=True)


def gguf_word(path: Path, random: Random) -> Mutation:
    """Eight bytes of the header are others."""
    content = bytearray(path.read_bytes())
    at = random.randrange(8, content.index(b"token_embd.weight") + 1500)
    content[at : at + 8] = struct.pack("<Q", random.choice((0, 1, 2**31, 2**63, 2**64 - 1, random.getrandbits(64))))
    replace(path, bytes(content))
    return Mutation("eight bytes of the header")
