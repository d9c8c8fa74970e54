"""Mutations: seeded changes that damage a valid file in place. `wrong` marks those after which no reader may accept the file."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any


@dataclass(frozen=True)
class Mutation:
    """What was done to a file."""

    name: str
    wrong: bool = False


Mutator = Callable[[Path, Random], Mutation]
SPARSE_BYTES = 5 * 2**30
STRANGE_STRINGS = (
    *(
        "",
        " ",
        "../../etc/passwd",
        "/dev/zero",
        "/etc/passwd",
        "\0",
        "\x1b[31mred",
        "a" * 10_000,
        "\u202eabc",
        "🙂" * 50,
    ),
    *("<script>alert(1)</script>", "=1+1", "$(touch x)", "CON", "zzz", "eng", "None", "nan", "-1", "{{ 7 * 7 }}"),
)
STRANGE_NUMBERS = (0, -1, 1, 2, 3, 7, 255, 2**16, 2**31, 2**63 - 1, -(2**63), 10**18, 0.5, -0.5, 1e-300, 1e300, 10**30)


def replace(path: Path, content: bytes) -> None:
    """Files of a case may be hard links to those of other cases: they are never changed in place."""
    remove(path)
    path.write_bytes(content)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# What stands in the place of a file


def no_file(path: Path, random: Random) -> Mutation:
    kind = random.choice(("folder", "pipe", "loop", "nothing", "outside", "device", "absent"))
    remove(path)
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind != "absent":
        outside = path.parent.parent / "outside"
        outside.write_bytes(b"\xff")
        targets = {"loop": path, "nothing": path.with_name("nowhere"), "outside": outside, "device": Path("/dev/zero")}
        path.symlink_to(targets[kind])
    return Mutation(f"{kind} in its place", wrong=True)


def random_bytes(path: Path, random: Random) -> Mutation:
    replace(path, random.randbytes(random.choice((0, 100, 5000))))
    return Mutation("random bytes", wrong=True)


def cut(path: Path, random: Random) -> Mutation:
    content = path.read_bytes().rstrip()
    replace(path, content[: random.randrange(max(1, len(content) - 64))])
    return Mutation("cut short", wrong=True)


def flipped_bits(path: Path, random: Random) -> Mutation:
    content = bytearray(path.read_bytes())
    # Headers are at the beginning.
    reach = len(content) if random.random() < 0.5 else min(len(content), 2000)
    for _ in range(random.choice((1, 1, 3, 20))):
        content[random.randrange(reach)] ^= 1 << random.randrange(8)
    replace(path, bytes(content))
    return Mutation("flipped bits")


def not_utf8(path: Path, random: Random) -> Mutation:
    content = path.read_bytes()
    at = random.randrange(len(content))
    replace(path, content[:at] + random.choice((b"\xff", b"\xfe\x00", b"\xed\xa0\x80", b"\xc0\x80")) + content[at:])
    return Mutation("not UTF-8", wrong=True)


def sparse(path: Path, random: Random) -> Mutation:
    content = path.read_bytes()
    replace(path, content)
    os.truncate(path, SPARSE_BYTES)
    return Mutation("5 GiB of nothing appended", wrong=True)


# JSON


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(found for key, member in inner for found in _places(member, (*place, key)))]


def _get(value: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        value = value[key]
    return value


def _named(place: tuple[Any, ...]) -> str:
    return ".".join(map(str, place)) or "the top"


def _set(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    if not place:
        return new
    _get(value, place[:-1])[place[-1]] = new
    return value


def _pick(value: Any, random: Random, *kinds: type) -> tuple[Any, ...] | None:
    found = [place for place in _places(value) if isinstance(_get(value, place), kinds)]
    return random.choice(found) if found else None


def _raw(path: Path, random: Random, text: str, *, in_place_of: tuple[type, ...]) -> None:
    """Put a text that `json.dumps` would not write into the place of some value."""
    value = json.loads(path.read_text(encoding="utf-8"))
    place = _pick(value, random, *in_place_of) or ()
    marked = json.dumps(_set(value, place, "@here@"))
    replace(path, marked.replace('"@here@"', text).encode("utf-8", "surrogatepass"))


def other_top(path: Path, random: Random) -> Mutation:
    text = random.choice(("null", "[]", "3", '"text"', "true", "[{}]", "1e5", "[null]"))
    replace(path, text.encode())
    return Mutation(f"{text} at the top", wrong=True)


def no_number(path: Path, random: Random) -> Mutation:
    text = random.choice(("NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 5000))
    _raw(path, random, text, in_place_of=(int, float))
    return Mutation(f"{text[:9]} for a number", wrong=True)


def deep(path: Path, random: Random) -> Mutation:
    depth = random.choice((300, 5000, 100_000))
    _raw(path, random, "[" * depth + "]" * depth, in_place_of=(str, int, float, list, dict))
    return Mutation(f"nested {depth} deep", wrong=True)


def half_surrogate(path: Path, random: Random) -> Mutation:
    _raw(path, random, random.choice(('"\\ud800"', '"a\\udfffb"')), in_place_of=(str,))
    return Mutation("half of a surrogate pair", wrong=True)


def key_twice(path: Path, random: Random) -> Mutation:
    value = json.loads(path.read_text(encoding="utf-8"))
    objects = [place for place in _places(value) if isinstance(_get(value, place), dict) and _get(value, place)]
    chosen = _get(value, random.choice(objects))
    key = random.choice(list(chosen))
    chosen["@again@"] = chosen[key]
    replace(path, json.dumps(value).replace('"@again@"', json.dumps(key)).encode())
    return Mutation("a key twice", wrong=True)


def other_type(path: Path, random: Random) -> Mutation:
    """A value of a type that no schema of ours takes in that place."""
    value = json.loads(path.read_text(encoding="utf-8"))
    place = random.choice(_places(value)[1:] or [()])
    old = _get(value, place)
    new: Any = {"an": "object"} if not isinstance(old, dict) else ["a", "list"]
    if isinstance(old, bool | int | float) and random.random() < 0.6:
        new = str(old)
    elif isinstance(old, str) and random.random() < 0.6:
        new = random.choice((7, 1.5, True))
    replace(path, json.dumps(_set(value, place, new)).encode())
    return Mutation(f"{type(new).__name__} for {type(old).__name__} at {_named(place)}", wrong=True)


def other_value(path: Path, random: Random) -> Mutation:
    value = json.loads(path.read_text(encoding="utf-8"))
    place = _pick(value, random, str, int, float) or ()
    old = _get(value, place)
    if isinstance(old, bool):
        new: Any = not old
    else:
        new = random.choice(STRANGE_STRINGS if isinstance(old, str) else STRANGE_NUMBERS)
    replace(path, json.dumps(_set(value, place, new)).encode())
    return Mutation(f"{_named(place)} {str(old)[:20]!r} becomes {str(new)[:20]!r}")


def lost_entry(path: Path, random: Random) -> Mutation:
    value = json.loads(path.read_text(encoding="utf-8"))
    place = random.choice(_places(value)[1:] or [()])
    if place:
        del _get(value, place[:-1])[place[-1]]
    replace(path, json.dumps(value).encode())
    return Mutation(f"without {_named(place)}")


def more_entries(path: Path, random: Random) -> Mutation:
    """An entry copied to another place, or a list twice as long."""
    value = json.loads(path.read_text(encoding="utf-8"))
    place = _pick(value, random, list, dict) or ()
    holder = _get(value, place)
    if isinstance(holder, list):
        holder += holder[: random.choice((1, len(holder)))]
    else:
        holder[random.choice((*STRANGE_STRINGS, "extra"))] = random.choice((None, 1, "x", [], {}))
    replace(path, json.dumps(value).encode())
    return Mutation(f"more in {_named(place)}")


def exchanged(path: Path, random: Random) -> Mutation:
    """Two values of the same type in each other's place."""
    value = json.loads(path.read_text(encoding="utf-8"))
    kind = random.choice((str, int, float, bool))
    places = [place for place in _places(value) if place and type(_get(value, place)) is kind]
    changed = "nothing"
    if len(places) > 1:
        one, other = random.sample(places, 2)
        first, second = _get(value, one), _get(value, other)
        _set(value, one, second)
        _set(value, other, first)
        changed = f"{_named(one)} and {_named(other)}"
    replace(path, json.dumps(value).encode())
    return Mutation(f"exchanged {changed}")
