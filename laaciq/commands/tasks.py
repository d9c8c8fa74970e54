"""`tasks`: test text as tasks of lm-evaluation-harness, in its own format, for any model that it loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Unpack

from huggingface_hub.utils import yaml_dump
from pydantic import BaseModel, ConfigDict

from laaciq.corpus import Passages, read_split
from laaciq.corpus.word_order import questions
from laaciq.engine.files import atomic_folder, require_free
from laaciq.options import TasksOptions
from laaciq.options.keywords import TasksKeywords

# What all languages of a task share; by the name of the task.
TEMPLATES: dict[str, dict[str, Any]] = {
    "laaciq_bits": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "bits_per_byte"}, {"metric": "byte_perplexity"}],
    },
    "laaciq_order": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{start}}",
        "doc_to_choice": "{{endings}}",
        "doc_to_target": "{{answer}}",
        # An ending brings its own space, where its script has any.
        "target_delimiter": "",
        # All endings are as long: there is nothing to normalise by.
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    },
}
_COMMON = {"dataset_path": "json", "test_split": "test", "metadata": {"version": 1.0}}


class Tasks(BaseModel):
    """What was written: `groups` by name, each with its tasks, one a language."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: str
    groups: dict[str, list[str]]


def tasks(out: str | Path, *, overwrite: bool = False, **options: Unpack[TasksKeywords]) -> Tasks:
    """Write a folder for the harness's `--include_path`, from the test part of the texts: no plan was chosen on it. Options as in
    `TasksOptions`.

    `laaciq_bits` asks for bits per byte of every passage, `laaciq_order` which of four endings has its words in order. A group has no
    mean: it would hide the language that pays most.
    """
    folder, chosen = Path(out), TasksOptions.of(**options)
    require_free(folder, overwrite=overwrite)
    test = read_split(chosen.texts, seed=chosen.seed).test.select(chosen.languages)
    groups = {group: [f"{group}_{code}" for code in test.languages] for group in TEMPLATES}
    with atomic_folder(folder) as partial:
        for code, passages in test.by_language.items():
            (partial / f"{code}.jsonl").write_text(_records(passages), encoding="utf-8")
        for group, template in TEMPLATES.items():
            _write(partial / _template(group), _COMMON | template)
            _write(partial / f"{group}.yaml", {"group": group, "task": groups[group]})
            for code in test.languages:
                # The harness looks for files from where it was started, so their place is told in full.
                data = {"data_files": {"test": str(folder.resolve() / f"{code}.jsonl")}}
                own = {"include": _template(group), "task": f"{group}_{code}", "dataset_kwargs": data}
                _write(partial / f"{group}_{code}.yaml", own)
    return Tasks(folder=str(folder), groups=groups)


def _records(passages: Passages) -> str:
    rows = [
        {"text": text, "start": asked.start, "endings": asked.endings, "answer": asked.answer}
        for text, asked in zip(passages.texts, questions(passages), strict=True)
    ]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(yaml_dump(content, sort_keys=False), encoding="utf-8")


def _template(group: str) -> str:
    """By the harness's custom without an ending: else it would be taken for a task."""
    return f"_{group}_template_yaml"
