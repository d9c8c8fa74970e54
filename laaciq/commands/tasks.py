"""`tasks`: write test text as tasks of lm-evaluation-harness, for any model that the harness loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Unpack

from laaciq.commands.settings import spells_out
from laaciq.corpus import Passages, read_split
from laaciq.corpus.word_order import questions
from laaciq.engine.escaping import yaml_text
from laaciq.engine.files import write_text
from laaciq.engine.progress import default_progress
from laaciq.engine.store import key_of
from laaciq.engine.whole_output import write_whole
from laaciq.options import TasksOptions
from laaciq.options.keywords import TasksKeywords
from laaciq.strict import StrictModel

# What all languages of a group share, by the name of the group.
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
        # An ending begins with a space in scripts that use spaces.
        "target_delimiter": "",
        # All endings have the same length: there is nothing to normalise by.
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    },
}
_COMMON = {"dataset_path": "json", "test_split": "test", "metadata": {"version": 1.0}}


class Tasks(StrictModel):
    """The written groups, by name, each with its tasks: one per language."""

    folder: str
    groups: dict[str, list[str]]


@spells_out(TasksOptions, TasksKeywords)
def tasks(out: str | Path, *, overwrite: bool = False, **options: Unpack[TasksKeywords]) -> Tasks:
    """Write the test part of the texts, which no plan was chosen on, as a folder for the harness's `--include_path`; options as in
    `TasksOptions`. Another finished folder is replaced only with `overwrite`.

    `laaciq_bits` measures bits per byte of every passage; `laaciq_order` asks which of four endings has its words in order. A group has no
    mean, because it would hide the language that loses most.
    """
    folder, chosen = Path(out), TasksOptions.of(**options)
    test = read_split(chosen.texts, seed=chosen.seed).test.select(chosen.languages)
    groups = {group: [f"{group}_{code}" for code in test.languages] for group in TEMPLATES}

    def fill(partial: Path, parts: Path) -> Tasks:
        for code, passages in test.by_language.items():
            write_text(partial / f"{code}.jsonl", _records(passages))
        for group, template in TEMPLATES.items():
            _write(partial / _template(group), _COMMON | template)
            _write(partial / f"{group}.yaml", {"group": group, "task": groups[group]})
            for code in test.languages:
                # The harness resolves relative paths from its working directory.
                data = {"data_files": {"test": str(folder.resolve() / f"{code}.jsonl")}}
                task = {"include": _template(group), "task": f"{group}_{code}", "dataset_kwargs": data}
                _write(partial / f"{group}_{code}.yaml", task)
        return Tasks(folder=str(folder), groups=groups)

    key = key_of("tasks", str(folder.absolute()), test.fingerprint)
    return write_whole(
        folder, Tasks, fill, command=chosen.command, key=key, overwrite=overwrite, progress=default_progress()
    )


def _records(passages: Passages) -> str:
    rows = [
        {"text": text, "start": question.start, "endings": question.endings, "answer": question.answer}
        for text, question in zip(passages.texts, questions(passages), strict=True)
    ]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _write(path: Path, content: dict[str, Any]) -> None:
    write_text(path, yaml_text(content))


def _template(group: str) -> str:
    """Without a suffix, as is usual in the harness: with `.yaml` it would count as a task."""
    return f"_{group}_template_yaml"
