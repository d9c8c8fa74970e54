"""What an editor completes in `laaciq.run(…)` is what `laaciq.run` takes."""

import inspect
from collections.abc import Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Union, Unpack, get_args, get_origin, get_type_hints

import pytest
from pydantic import BeforeValidator

import laaciq
from laaciq.commands.settings import Settings
from laaciq.engine.progress import Progress
from laaciq.errors import BadOption
from laaciq.options import VERBS


def accepted(annotation, metadata=()):
    """The type that Python callers may give for a field: any sequence for a tuple, a path for the name of a place."""
    if get_origin(annotation) is Annotated:
        kind, *metadata = get_args(annotation)
        return accepted(kind, metadata)
    if get_origin(annotation) in (Union, UnionType):
        return reduce(or_, (kind if kind is NoneType else accepted(kind) for kind in get_args(annotation)))
    if get_origin(annotation) is tuple:
        return Sequence[accepted(get_args(annotation)[0])]
    return str | Path if any(isinstance(mark, BeforeValidator) for mark in metadata) else annotation


@pytest.mark.parametrize("verb", VERBS)
def test_keywords_are_the_fields_of_options_and_settings(verb):
    function, options = getattr(laaciq, verb), VERBS[verb]
    code = function.__code__
    named = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    (unpacked,) = (kind for kind in get_type_hints(function).values() if get_origin(kind) is Unpack)
    typed = get_type_hints(get_args(unpacked)[0], localns={"Progress": Progress})
    settings = get_type_hints(Settings, localns={"Progress": Progress})
    assert {name: kind for name, kind in typed.items() if name in settings}.items() <= settings.items()
    assert options.shares_work == (typed.keys() >= {"workers", "ray"})
    assert options.bounds_memory == (typed.keys() >= {"gpu_memory", "host_memory"})
    assert {name: kind for name, kind in typed.items() if name not in settings} == {
        name: accepted(field.annotation, field.metadata)
        for name, field in options.model_fields.items()
        if name not in named
    }
    assert named <= set(options.model_fields) | settings.keys()
    # What `help` and a notebook show.
    assert set(inspect.signature(function).parameters) == named | typed.keys()


def test_help_shows_defaults():
    shown = inspect.signature(laaciq.gateway).parameters
    assert {name: shown[name].default for name in ("protect", "bits", "device", "out")} == {
        "protect": 3, "bits": 4, "device": "auto", "out": None,
    }  # fmt: skip


def test_a_setting_that_a_verb_does_not_take_is_refused():
    with pytest.raises(BadOption, match="unknown option 'workers'"):
        laaciq.plan(workers=2)


def test_the_package_shows_its_verbs():
    assert set(VERBS) <= set(dir(laaciq))
    assert all(callable(getattr(laaciq, verb)) for verb in VERBS)
