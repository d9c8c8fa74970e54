"""The keyword arguments of verbs: options, which decide results, and settings, which do not."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from laaciq.options import Options

if TYPE_CHECKING:
    from laaciq.engine.progress import Progress
    from laaciq.trials.memory import MemoryLimits

Chosen = TypeVar("Chosen", bound=Options)
Verb = TypeVar("Verb", bound=Callable[..., object])


@dataclass(frozen=True)
class Settings:
    """What a verb takes beside its options; it decides nothing of a result.

    Results are stored in `out`, and not computed again; another command's are replaced only with `overwrite`. `workers` and `ray` are
    explained in docs/workers.md, `gpu_memory` and `host_memory` (such as "24GB") in docs/scale.md.
    """

    out: str | Path | None = None
    overwrite: bool = False
    device: str = "auto"
    progress: Progress | None = None
    workers: int | None = None
    ray: str | None = None
    gpu_memory: str | None = None
    host_memory: str | None = None

    @property
    def limits(self) -> MemoryLimits:
        from laaciq.trials.memory import read_limits

        return read_limits(self.gpu_memory, self.host_memory, self.device)


# Settings that not every verb takes.
_SHARING, _BOUNDING = ("workers", "ray"), ("gpu_memory", "host_memory")


def read_keywords(kind: type[Chosen], keywords: Mapping[str, Any], **named: Any) -> tuple[Chosen, Settings]:
    """Options and settings of a verb, from its keyword arguments and those that it names."""
    without = (() if kind.shares_work else _SHARING) + (() if kind.bounds_memory else _BOUNDING)
    names = {field.name for field in fields(Settings) if field.name not in without}
    options = {name: value for name, value in keywords.items() if name not in names}
    settings = {name: value for name, value in keywords.items() if name in names}
    return kind.of(**named, **options), Settings(**settings)


def spells_out(kind: type[Options], keywords: type) -> Callable[[Verb], Verb]:
    """A decorator for a verb with options of `kind` and `**keywords: Unpack[keywords]`. `help`, notebooks and
    `inspect.signature` then show each keyword by name, with its default.
    """
    defaults = {field.name: field.default for field in fields(Settings)}
    defaults |= {name: field.default for name, field in kind.model_fields.items()}

    def decorate(verb: Verb) -> Verb:
        signature = inspect.signature(verb)
        named = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        spelled = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name])
            for name in sorted(keywords.__annotations__)
        ]
        verb.__signature__ = signature.replace(parameters=[*named, *spelled])  # type: ignore[attr-defined]
        return verb

    return decorate
