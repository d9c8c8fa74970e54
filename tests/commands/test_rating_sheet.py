"""Sheets for raters, and their answers read back."""

import base64
import csv
import hashlib
import json
import re
import shutil

import pytest

import laaciq
from laaciq.engine.csv_input import read_rows
from laaciq.errors import BadOption
from laaciq.evaluation.continuations import Continuations, ContinuedPrompt
from tests.cli.rendering import assert_legible
from tests.cli.results import evaluation

FORMULA = '=HYPERLINK("https://example.org")'
ACTIVE = "</p><script>alert(1)</script>"


@pytest.fixture
def run(tmp_path):
    """What a finished run with --generate left, as far as sheets read it."""
    folder = tmp_path / "run"
    (folder / "generation").mkdir(parents=True)
    (folder / "evaluation.json").write_text(evaluation({"eng": 0.01, "swa": 0.2}).model_dump_json())
    (folder / "run.json").write_text(json.dumps({"laaciq": "1", "command": "laaciq run --generate", "finished": True}))
    for code in ("eng", "swa"):
        pairs = [
            ContinuedPrompt(prompt=f"{FORMULA} {n}", original=f"{ACTIVE} {n}", quantized=f"@b {n}") for n in range(5)
        ]
        pairs.append(ContinuedPrompt(prompt="p", original="same", quantized="same"))
        text = Continuations(language=code, script="Latin", prompts=pairs).model_dump_json()
        (folder / f"generation/{code}.json").write_text(text)
    return folder


@pytest.fixture
def sheets(run, tmp_path):
    laaciq.rating_sheet(run, out=tmp_path / "rating", pairs=4)
    return tmp_path / "rating"


def answer(sheets, code, choose, to):
    """A rater fills in the CSV sheet in a spreadsheet with semicolons."""
    with open(sheets / f"sheets/{code}.csv", newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    with open(to, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), delimiter=";")
        writer.writeheader()
        writer.writerows(row | {"choice": choose(row)} for row in rows)
    return to


def test_sheets_hold_no_formula_no_markup_and_no_key(sheets):
    rows = [row for _, row in read_rows(sheets / "sheets/swa.csv", ("item", "prompt", "A", "B", "choice"), None)]
    assert [row["item"] for row in rows] == [f"swa-00{n}" for n in range(1, 5)]
    assert all(not cell.startswith(("=", "+", "-", "@")) for row in rows for cell in row.values())
    assert {row["choice"] for row in rows} == {""}
    page = (sheets / "sheets/swa.html").read_text()
    (script,) = re.findall("<script>(.*?)</script>", page, flags=re.DOTALL)
    assert "alert" not in script and "&lt;script&gt;alert(1)" in page
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert not re.search("(src|href)=", page)
    names = {path.name for path in (sheets / "sheets").iterdir()}
    assert names == {"eng.csv", "eng.html", "swa.csv", "swa.html"}


def test_answers_are_read_back_through_the_key(sheets, tmp_path):
    key = {e["item"]: e["original"] for e in json.loads((sheets / "key.json").read_text())["pairs"]}
    files = [
        answer(sheets, "swa", lambda row: key[row["item"]], tmp_path / "a.csv"),
        answer(sheets, "eng", lambda row: "tie", tmp_path / "b.csv"),
    ]
    result = laaciq.ratings(files, key=sheets / "key.json")
    english, swahili = result.languages
    assert (swahili.original.value, english.tie.value, result.overall.original.value) == (1, 1, 0.5)
    assert result.identical == {"eng": 1, "swa": 1}
    from laaciq.cli.ratings import ratings_table

    assert_legible(ratings_table(result), "swa", "100 [51, 100]")


def saved(tmp_path, *rows):
    """What the form saves."""
    (tmp_path / "answers.csv").write_text("\r\n".join(["item,choice", *rows]))
    return tmp_path / "answers.csv"


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (["swa-001,A", "swa-002,", "swa-003,B", "swa-004,tie"], "no answer to 1 of 4 pairs, the first is swa-002"),
        (["swa-001,A"], "no answer to 3 of 4 pairs"),
        (["swa-001,C"], r"the choice 'C' in row 2; it can be A, B or tie"),
        (["tam-001,A"], "the item 'tam-001' in row 2, which is not in the key"),
        (["swa-001,A", "swa-001,A"], "the item 'swa-001' twice"),
        (["swa-001"], "has 1 cells in row 2, and 2 in its first row"),
        (['swa-001,"A'], "is not CSV"),
        ([], "has no answers"),
    ],
)
def test_damaged_or_incomplete_answers_are_refused(sheets, tmp_path, rows, sentence):
    with pytest.raises(BadOption, match=sentence):
        laaciq.ratings([saved(tmp_path, *rows)], key=sheets / "key.json")


def test_a_run_without_continuations_is_refused(run, sheets, tmp_path):
    with pytest.raises(BadOption, match="given twice"):
        laaciq.ratings(["a.csv", "a.csv"], key=sheets / "key.json")
    with pytest.raises(BadOption, match="no continuations in tam: it has eng, swa"):
        laaciq.rating_sheet(run, out=tmp_path / "other", languages=["Tamil"])
    shutil.rmtree(run / "generation")
    with pytest.raises(BadOption, match="with --generate"):
        laaciq.rating_sheet(run, out=tmp_path / "other")
