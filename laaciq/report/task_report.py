"""Answers to tasks before and after quantization: the table in words, and one HTML page."""

from __future__ import annotations

from laaciq.engine.escaping import shown_command
from laaciq.evaluation.task_results import TaskResult, TaskResults
from laaciq.report.page import code, heading, page, paragraph, table
from laaciq.report.paired_cells import FOOT, before_after, changes, p_value, points

TITLE = "What quantization costs on tasks"
HEADS = ("language", "task", "items", "accuracy", "difference", "right → wrong", "wrong → right", "p")


def cells(result: TaskResult) -> list[str]:
    """Of a task, under `HEADS`."""
    accuracy = result.accuracy
    return [
        result.name if result.language is None else f"{result.language} {result.name}",
        result.task,
        str(accuracy.items),
        before_after(accuracy),
        points(accuracy.difference),
        str(accuracy.lost),
        str(accuracy.gained),
        p_value(accuracy.p_corrected),
    ]


def sentences(results: TaskResults) -> list[str]:
    """What the table shows, and what it does not."""
    pairs = [(result.name, result.accuracy) for result in results.tasks]
    lines = [changes(f"Accuracy ({results.metric})", pairs, more="higher", less="lower")]
    if results.left_out:
        lines.append(f"Left out, because they do not have the metric {results.metric}: {', '.join(results.left_out)}.")
    return lines


def task_report(results: TaskResults, command: str) -> str:
    return page(
        f"{TITLE}: {results.quantized}",
        [
            heading(TITLE, 1),
            paragraph(f"{results.original} → {results.quantized}"),
            *map(paragraph, sentences(results)),
            table(HEADS, map(cells, results.tasks), label="Tasks by language", text_columns=2),
            paragraph(FOOT),
            heading("Reproduce"),
            code(shown_command(command)),
        ],
    )
