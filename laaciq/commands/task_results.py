"""`task_results`: what lm-evaluation-harness logged of the original and of the quantized model, compared item by item."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any, Unpack

from pydantic import BaseModel

from laaciq.commands.settings import spells_out
from laaciq.engine.files import write_text
from laaciq.engine.input_files import MOST_DATA_BYTES, Refusal, is_file, is_folder, read_text
from laaciq.engine.json_input import parse_object, parse_record
from laaciq.engine.progress import default_progress
from laaciq.engine.store import key_of
from laaciq.engine.whole_output import write_whole
from laaciq.errors import BadOption
from laaciq.evaluation.task_results import Answer, TaskResults, compare_answers
from laaciq.options import TaskResultsOptions
from laaciq.options.keywords import TaskResultsKeywords
from laaciq.report.task_report import task_report

# samples_TASK_2026-11-18T03-47-10.514081.jsonl
_LOG = re.compile(r"samples_(?P<task>.+?)(_\d{4}-\d\d-\d\dT[\d.-]+)?\.jsonl")
_LOG_AGAIN = Refusal(BadOption, "run lm-eval again with --log_samples")


class _Sample(BaseModel):
    """What we read of an item in the harness's log; it holds more."""

    doc_id: int
    doc_hash: str
    filter: str = "none"
    metrics: list[str]


@spells_out(TaskResultsOptions, TaskResultsKeywords)
def task_results(
    original: str | Path,
    quantized: str | Path,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    **options: Unpack[TaskResultsKeywords],
) -> TaskResults:
    """Compare the answers of two models to the same items; options as in `TaskResultsOptions`.

    `original` and `quantized` are what `lm-eval run --log_samples --output_path FOLDER` wrote: folders, or single logs. A report is written to
    the folder `out`, if given; another finished result there is replaced only with `overwrite`.
    """
    chosen = TaskResultsOptions.of(original=original, quantized=quantized, **options)
    sides = [_read(Path(side), chosen.metric) for side in (chosen.original, chosen.quantized)]
    results = compare_answers(
        sides[0].answers,
        sides[1].answers,
        names=(chosen.original, chosen.quantized),
        metric=chosen.metric,
        left_out=sorted(sides[0].without | sides[1].without),
    )
    if out is None:
        return results

    def fill(partial: Path, parts: Path) -> TaskResults:
        write_text(partial / "task-results.json", results.model_dump_json(indent=1))
        write_text(partial / "report.html", task_report(results, chosen.command))
        return results

    key = key_of("task-results", results.model_dump())
    return write_whole(
        Path(out), TaskResults, fill, command=chosen.command, key=key, overwrite=overwrite, progress=default_progress()
    )


class _Side:
    """The answers of one model by task, and the tasks that do not have the metric."""

    def __init__(self) -> None:
        self.answers: dict[str, dict[int, Answer]] = defaultdict(dict)
        self.without: set[str] = set()


def _read(place: Path, metric: str) -> _Side:
    side, seen = _Side(), dict[str, Path]()
    for path in _logs(place):
        match = _LOG.fullmatch(path.name)
        task = match["task"] if match else path.stem
        if task in seen:
            raise BadOption(
                f"{place} has two logs of {task}, {seen[task]} and {path}: give the folder of one model and one run"
            )
        seen[task] = path
        _read_log(path, task, metric, side)
    return side


def _logs(place: Path) -> list[Path]:
    if is_file(place):
        return [place]
    if not is_folder(place):
        raise BadOption(
            f"{place} is neither a folder nor a log: give what lm-eval wrote with --log_samples --output_path"
        )
    logs = sorted(place.rglob("samples_*.jsonl"))
    if not logs:
        raise BadOption(f"{place} has no samples_*.jsonl: run lm-eval with --log_samples --output_path {place}")
    return logs


def _read_log(path: Path, task: str, metric: str, side: _Side) -> None:
    lines = [line for line in read_text(path, _LOG_AGAIN, most=MOST_DATA_BYTES).split("\n") if line.strip()]
    if not lines:
        raise _LOG_AGAIN.of(path, "is empty")
    for number, line in enumerate(lines, start=1):
        place = f"{path}, line {number}"
        record = parse_object(line, place, _LOG_AGAIN)
        sample = parse_record(line, _Sample, place, _LOG_AGAIN)
        name = task if sample.filter == "none" else f"{task}, {sample.filter}"
        if metric not in sample.metrics:
            side.without.add(name)
            continue
        if sample.doc_id in side.answers[name]:
            raise _LOG_AGAIN.of(place, f"has a second answer to item {sample.doc_id}")
        side.answers[name][sample.doc_id] = Answer(sample.doc_hash, _is_right(record.get(metric), metric, place))


def _is_right(value: Any, metric: str, place: str) -> bool:
    if value not in (0, 1):
        raise BadOption(
            f"{place} has {metric} {value!r}: only items that are right (1) or wrong (0) can be paired; give another --metric"
        )
    return bool(value)
