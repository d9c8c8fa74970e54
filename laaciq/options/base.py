"""The base class of options: strict names and ranges, refusal of options without effect, the equivalent command line, a default folder."""

from __future__ import annotations

import difflib
import hashlib
import json
import shlex
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from laaciq.errors import BadOption
from laaciq.options.values import Repeated, flag
from laaciq.strict import StrictModel

# Folder of all default folders.
RUNS = Path("laaciq-runs")

Group = TypeVar("Group", bound="Options")


class Condition(Protocol):
    """Decides whether an option has an effect, given all others."""

    def obstacle(self, options: Any, name: str) -> str | None:
        """Why the option `name` has no effect, to follow its name in a sentence; None if it has one."""
        ...


@dataclass(frozen=True)
class Only:
    """`names` have an effect only if `holds`; otherwise `reason` says why they have none."""

    names: frozenset[str]
    holds: Callable[[Any], bool]
    reason: str

    def obstacle(self, options: Any, name: str) -> str | None:
        return None if name not in self.names or self.holds(options) else self.reason


class Options(StrictModel, allow_inf_nan=False):
    """Strict: an unknown name is an error that names the nearest known one, and so is a given option without effect.

    `verb` is the function in Python, `typed` the command if it has another name, `positional` its arguments in order. `shares_work` is True if
    workers can take part, `bounds_memory` if blocks can be offloaded at every stage. `conditions` say which options have no effect beside which
    others; those of base classes hold too.
    """

    verb: ClassVar[str] = ""
    typed: ClassVar[str] = ""
    positional: ClassVar[tuple[str, ...]] = ()
    shares_work: ClassVar[bool] = False
    bounds_memory: ClassVar[bool] = False
    conditions: ClassVar[tuple[Condition, ...]] = ()
    # Options that do not affect the results in the default folder.
    undecisive: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Options as a user gives them. None stands for an option that was not given."""
        for name in values:
            if name not in cls.model_fields:
                near = difflib.get_close_matches(name, cls.model_fields, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known options: {', '.join(cls.model_fields)}"
                raise BadOption(f"unknown option {name!r}: {hint}")
        try:
            options = cls(**{name: value for name, value in values.items() if value is not None})
        except ValidationError as error:
            raise BadOption(_sentence(error)) from None
        options.refuse_unread()
        return options

    def refuse_unread(self, *conditions: Condition) -> None:
        """Raise `BadOption` for the first given option without effect, by `conditions` or by those of the class and then of its bases."""
        given = [name for name in type(self).model_fields if name in self.model_fields_set]
        for condition in conditions or self._all_conditions():
            for name in given:
                if (reason := condition.obstacle(self, name)) is not None:
                    typed = _words(name, type(self).model_fields[name], getattr(self, name)) or [flag(name)]
                    raise BadOption(f"{typed[0]} {reason}")

    @classmethod
    def _all_conditions(cls) -> Iterable[Condition]:
        for kind in cls.__mro__:
            yield from vars(kind).get("conditions", ())

    @classmethod
    def typed_verb(cls) -> str:
        """The verb as it is typed on the command line."""
        return cls.typed or cls.verb.replace("_", "-")

    def group(self, kind: type[Group]) -> Group:
        """Only the options of one group."""
        return kind(**self.model_dump(include=set(kind.model_fields)))

    def carried_over(self, kind: type[Group], *, without: Collection[str] = (), **changed: Any) -> Group:
        """Options of a command that follows this one: what the user gave, as far as it has an effect there, and what is `changed`."""
        names = self.model_fields_set & kind.model_fields.keys() - changed.keys() - set(without)
        while True:
            options = kind(**{name: getattr(self, name) for name in names}, **changed)
            unread = {n for condition in kind._all_conditions() for n in names if condition.obstacle(options, n)}
            if not unread:
                return options
            names -= unread

    @property
    def command(self) -> str:
        """The equivalent command line: the options that differ from their defaults."""
        fields = type(self).model_fields
        changed = [name for name in fields if getattr(self, name) != fields[name].default]
        arguments = [word for name in self.positional if name in changed for word in _texts(getattr(self, name))]
        words = ["laaciq", *self.typed_verb().split(), *arguments]
        for name in changed:
            if name not in self.positional:
                words += _words(name, fields[name], getattr(self, name))
        return shlex.join(words)  # noqa: TID251 (for the record; what is shown is quoted again)

    @property
    def default_folder(self) -> Path:
        """The folder for results if `out` is not given. It depends on every option that affects the results."""
        words, spelled = self.folder_words()
        decisive = self.model_dump(
            mode="json", exclude_defaults=True, exclude=set(spelled | self.undecisive) | self._named_in_full()
        )
        digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:8]
        return RUNS / "-".join([self._subject, *words, *([digest] if decisive else [])])

    def folder_words(self) -> tuple[list[str], frozenset[str]]:
        """Words of the default folder's name after the model's, and the options that they spell out."""
        return [self.verb], frozenset()

    @property
    def _subject(self) -> str:
        """The last part of the path or name of the model or run."""
        return Path(str(getattr(self, self.positional[0]))).name if self.positional else "laaciq"

    def _named_in_full(self) -> set[str]:
        first = self.positional[0] if self.positional else ""
        return {first} if first and getattr(self, first) == self._subject else set()


def is_repeated(field: FieldInfo) -> bool:
    """True if the command line takes the option once per entry, not as one text with commas."""
    return any(isinstance(mark, Repeated) for mark in field.metadata)


def _words(name: str, field: FieldInfo, value: Any) -> list[str]:
    if name == "symmetric":
        return ["--symmetric" if value else "--affine"]
    if isinstance(value, bool):
        return [flag(name) if value else flag(f"no_{name}")]
    if is_repeated(field):
        return [word for entry in value for word in (flag(name), str(entry))]
    return [flag(name), ",".join(_texts(value))]


def _texts(value: Any) -> list[str]:
    return [str(entry) for entry in value] if isinstance(value, tuple) else [str(value)]


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    name, message = str(first["loc"][0]), first["msg"].removeprefix("Input ")
    if first["type"] == "missing":
        return f"{flag(name)} is required"
    return f"{flag(name)} cannot be {first['input']!r}: it {message}"
