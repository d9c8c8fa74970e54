"""Rows of a dataset, on the hub or in a folder, through the `datasets` library."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from laaciq.errors import BrokenTexts, MissingExtra, install_hint


def dataset_rows(
    path: str,
    *,
    part: str,
    source: str,
    advice: str,
    configuration: str | None = None,
    files: Mapping[str, str] | None = None,
    reading: Mapping[str, object] | None = None,
) -> Iterator[dict[str, Any]]:
    """Rows of the split `part`. `source` names the texts in errors, `advice` says what to give instead; `reading` goes to the file's reader."""
    datasets = optional_library("datasets", extra="datasets")
    named_files = {} if files is None else {"data_files": dict(files)}
    try:
        yield from datasets.load_dataset(path, configuration, split=part, **named_files, **(reading or {}))
    except ConnectionError as error:
        raise BrokenTexts(
            f"{source} cannot be downloaded ({first_line(error)}): connect to the hub, or {advice}"
        ) from None
    except Exception as error:  # the library raises what the dataset's format raises
        if "gated" in str(error):
            raise BrokenTexts(
                f"{source} is given only to those who accept its conditions: accept them at "
                f"https://huggingface.co/datasets/{path} and run 'hf auth login', or {advice}"
            ) from None
        raise BrokenTexts(
            f"{source} cannot be loaded ({type(error).__name__}: {first_line(error)}): {advice}"
        ) from None


def optional_library(module: str, *, extra: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtra(f"{module.partition('.')[0]} is not installed: {install_hint(extra)}") from None


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
