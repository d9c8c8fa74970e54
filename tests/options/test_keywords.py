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
from laaciq.options import VERBS

# What verbs take beside options: it decides nothing of a result.
PLAIN = {"out", "overwrite", "device", "progress", "workers", "ray"}


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
def test_keywords_are_the_fields_of_the_options(verb):
    function, fields = getattr(laaciq, verb), VERBS[verb].model_fields
    parameters = inspect.signature(function).parameters
    explicit = {name for name, p in parameters.items() if p.kind is not inspect.Parameter.VAR_KEYWORD}
    rest = [name for name, p in parameters.items() if p.kind is inspect.Parameter.VAR_KEYWORD]
    typed = {}
    for name in rest:
        annotation = get_type_hints(function)[name]
        assert get_origin(annotation) is Unpack
        typed = get_type_hints(get_args(annotation)[0])
    assert explicit - PLAIN <= set(fields)
    assert typed == {
        name: accepted(field.annotation, field.metadata) for name, field in fields.items() if name not in explicit
    }


def test_the_package_shows_its_verbs():
    assert set(VERBS) <= set(dir(laaciq))
    assert all(callable(getattr(laaciq, verb)) for verb in VERBS)
