"""What lm-evaluation-harness logged of two models, paired item by item."""

import json

import pytest

import laaciq
from laaciq.errors import BadOption
from laaciq.evaluation.task_results import TaskResults, language_of
from tests.cli.rendering import assert_legible

DATE = "2026-11-18T03-47-10.514081"


def log(folder, task, answers, **other):
    """As the harness writes it: one line per item, in a folder named after the model."""
    rows = [
        {"doc_id": n, "doc": {"text": "x"}, "target": "0", "filter": "none", "metrics": ["acc"], "doc_hash": f"h{n}", "acc": float(a)}
        for n, a in enumerate(answers)
    ]  # fmt: skip
    place = folder / "model"
    place.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row | other) for row in rows]
    (place / f"samples_{task}_{DATE}.jsonl").write_text("\n".join(lines) + "\n")


@pytest.fixture
def logs(tmp_path):
    for task, before, after in (
        ("laaciq_order_swa", [1] * 8 + [0] * 2, [0] * 7 + [1] * 3),
        ("xnli_hi", [1, 0], [1, 0]),
    ):
        log(tmp_path / "before", task, before)
        log(tmp_path / "after", task, after)
    return tmp_path


def test_right_and_wrong_are_counted_in_pairs_by_language(logs):
    result = laaciq.task_results(logs / "before", logs / "after", out=logs / "report")
    swahili, hindi = result.tasks
    assert (swahili.language, hindi.language) == ("swa", "hin")
    counts = swahili.accuracy
    assert (counts.items, counts.lost, counts.gained) == (10, 7, 2)
    assert (counts.original, counts.quantized) == (0.8, 0.3)
    assert counts.difference.low < counts.difference.value == pytest.approx(-0.5)
    # Two languages: the smaller of two p-values doubles.
    assert counts.p_corrected == pytest.approx(2 * counts.p)
    page = (logs / "report/report.html").read_text()
    for number in ("80 → 30 %", "-50 [", "Swahili", "laaciq task-results"):
        assert number in page
    assert TaskResults.model_validate_json((logs / "report/task-results.json").read_text()) == result


def test_the_table_fits_the_terminal(logs):
    from laaciq.cli.task_results import task_table

    assert_legible(task_table(laaciq.task_results(logs / "before", logs / "after")), "swa", "80 → 30 %", "50 → 50 %")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda root: log(root / "after", "laaciq_order_swa", [1] * 9), "did not answer the same items"),
        (lambda root: log(root / "after", "laaciq_order_swa", [1] * 10, doc_hash="other"), "did not answer the same"),
        (lambda root: log(root / "after", "xnli_fr", [1]), "before has no answers to xnli_fr"),
        (lambda root: log(root / "after", "xnli_hi", [1, 0], acc=0.5), r"acc 0\.5: only items that are right"),
        (lambda root: log(root / "after/again", "xnli_hi", [1, 0]), "has two logs of xnli_hi"),
        (lambda root: log(root / "after", "xnli_hi", [1, 0], doc_id=0), "a second answer to item 0"),
        (lambda root: log(root / "after", "xnli_hi", []), "is empty"),
    ],
)
def test_what_cannot_be_paired_is_refused(logs, damage, sentence):
    damage(logs)
    with pytest.raises(BadOption, match=sentence):
        laaciq.task_results(logs / "before", logs / "after")


def test_tasks_without_the_metric_are_named(logs):
    for side in ("before", "after"):
        log(logs / side, "laaciq_bits_eng", [0, 1], metrics=["bits_per_byte"])
    assert laaciq.task_results(logs / "before", logs / "after").left_out == ["laaciq_bits_eng"]
    with pytest.raises(BadOption, match="no task with the metric 'f1': give another --metric"):
        laaciq.task_results(logs / "before", logs / "after", metric="f1")


@pytest.mark.parametrize(
    ("task", "code"),
    [("xnli_sw", "swa"), ("belebele_swh_Latn", "swh"), ("laaciq_order_tam", "tam"), ("gsm8k_cot", None), ("mgsm_bn, strict", "ben")],
)  # fmt: skip
def test_the_language_is_the_end_of_a_task_s_name(task, code):
    assert language_of(task)[0] == code
