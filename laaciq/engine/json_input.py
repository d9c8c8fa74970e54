"""JSON that this program did not just write, from a file or from a part of one: well-formed, bounded, and of the right form.

Refused are: text that is not JSON, nesting deeper than 200 levels, half of a surrogate pair, a key given twice, NaN and infinity, integers
of more than 32 digits, and everything that the schema of a record does not allow.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from laaciq.engine.input_files import MOST_DATA_BYTES, MOST_SETTINGS_BYTES, Refusal, read_text
from laaciq.errors import LaaciqError

Record = TypeVar("Record", bound=BaseModel)
# transformers writes 10³⁰ for "no limit".
_MOST_DIGITS = 32
# Lengths of time may be without bound, and configurations of state-space models say so.
_UNBOUNDED = frozenset({"time_step_limit"})


class _Unfit(ValueError):
    """JSON that Python would accept and we refuse."""


def read_object(path: Path, refusal: Refusal, *, within: Path | None = None) -> dict[str, Any]:
    """The JSON object in a file such as config.json."""
    return parse_object(read_text(path, refusal, within=within, most=MOST_SETTINGS_BYTES), path, refusal)


def check_object(path: Path, refusal: Refusal, *, within: Path | None = None) -> None:
    """Raise an error unless the file is one well-formed JSON object. For large files that another library reads, such as tokenizer.json;
    entries are not checked.
    """
    text = read_text(path, refusal, within=within, most=MOST_SETTINGS_BYTES)
    try:
        whole = isinstance(from_json(text, allow_inf_nan=False), dict)
    except ValueError as error:
        raise refusal.of(path, f"is not valid JSON ({error})") from None
    if not whole:
        raise refusal.of(path, "holds no object {…}")


def read_record(
    path: Path, kind: type[Record], refusal: Refusal, *, within: Path | None = None, most: int = MOST_DATA_BYTES
) -> Record:
    """The result or plan of ours in a file, whoever wrote it."""
    return parse_record(read_text(path, refusal, within=within, most=most), kind, path, refusal)


def parse_object(text: str, name: Path | str, refusal: Refusal) -> dict[str, Any]:
    """The JSON object in a text. `name` says in errors where the text comes from."""
    value = _parse(text, name, refusal)
    if not isinstance(value, dict):
        raise refusal.of(name, f"holds {_named(value)}, expected an object {{…}}")
    return value


def parse_record(text: str, kind: type[Record], name: Path | str, refusal: Refusal) -> Record:
    """Like `parse_object`, then validated by the schema. It is strict: neither "3" nor 3.0 is the integer 3."""
    parse_object(text, name, refusal)
    try:
        return kind.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise refusal.of(name, f"is not valid: {first_problem(error)}") from None
    except LaaciqError as error:  # a validator that says more than pydantic does
        raise refusal.error(f"{name} is not valid: {error}") from None


def parse_section(section: object, kind: type[Record], name: str, refusal: Refusal) -> Record:
    """A part of a JSON file that was already read, validated by the schema."""
    try:
        text = json.dumps(section)
    except (TypeError, ValueError, RecursionError) as error:
        raise refusal.of(name, f"is not JSON ({error})") from None
    return parse_record(text, kind, name, refusal)


def first_problem(error: ValidationError) -> str:
    """The first of pydantic's errors as a sentence: `tensors.0.bits should be a valid integer`."""
    first = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(map(str, first["loc"]))
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        return f"{place} is missing"
    if first["type"] == "extra_forbidden":
        return f"{place} is not known"
    return f"{place} {message.removeprefix('Input ')}" if place else message


def _parse(text: str, name: Path | str, refusal: Refusal) -> Any:
    try:
        from_json(text)  # finds what Python's parser would accept or fail at: half surrogates, deep nesting
        value = json.loads(text, object_pairs_hook=_unique, parse_int=_integer)
    except _Unfit as error:
        raise refusal.of(name, str(error)) from None
    except (ValueError, RecursionError) as error:
        raise refusal.of(name, f"is not valid JSON ({error})") from None
    if (place := _unbounded_number(value)) is not None:
        raise refusal.of(name, f"has NaN or infinity at {place}, expected a finite number")
    return value


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise _Unfit(f"has the entry {key!r} twice")
        made[key] = value
    return made


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise _Unfit(f"has an integer of {len(digits)} digits, more than the limit of {_MOST_DIGITS}")
    return int(digits)


def _unbounded_number(value: Any) -> str | None:
    """Position of the first NaN or infinity; None if all numbers are finite."""
    pending: list[tuple[tuple[str, ...], Any]] = [((), value)]
    while pending:
        place, part = pending.pop()
        if isinstance(part, float) and not math.isfinite(part):
            if math.isnan(part) or _UNBOUNDED.isdisjoint(place):
                return ".".join(place) or "its start"
        elif isinstance(part, dict):
            pending += [((*place, key), member) for key, member in part.items()]
        elif isinstance(part, list):
            pending += [((*place, str(number)), member) for number, member in enumerate(part)]
    return None


def _named(value: object) -> str:
    names = {type(None): "null", bool: "true or false", int: "a number", float: "a number", str: "a string"}
    return names.get(type(value), "a list")
