"""Text sets of the hub, read from small copies with the same files and columns."""

import csv
import json
import sys
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet
import pytest

from laaciq.corpus import read_split, read_texts
from laaciq.corpus.calibration_choice import calibration_split
from laaciq.errors import BrokenTexts, MissingExtra, UnknownLanguage


@pytest.fixture
def library(tmp_path, monkeypatch):
    """The real library, with its cache in a folder of the test."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    return datasets


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def flores_row(code, number, *, text=None, glottocode="abcd1234"):
    language, script = code.split("_")
    return {
        "id": number,
        "iso_639_3": language,
        "iso_15924": script,
        "glottocode": glottocode,
        "text": text or f"{code} {glottocode} {number}",
        "url": f"https://example.org/{number // 2}",
        "domain": "wikinews",
        "topic": "any",
    }


def write_flores(folder, codes, passages=4):
    for split, first in (("dev", 0), ("devtest", 100)):
        for code in codes:
            write_rows(
                folder / split / f"{code}.jsonl", [flores_row(code, first + number) for number in range(passages)]
            )
    return f"flores200:{folder}"


def test_flores_is_aligned_and_keeps_its_parts_and_articles(tmp_path, library):
    source = write_flores(tmp_path / "copy", ["eng_Latn", "swh_Latn", "arb_Arab", "arz_Arab", "npi_Deva"])
    parts = read_split(source)
    assert set(parts.test.languages) == {"eng", "swa", "ara", "arz", "nep"}
    assert parts.test.parallel and parts.calibration.parallel
    assert parts.test["swa"].texts == tuple(f"swh_Latn abcd1234 {number}" for number in range(100, 104))
    assert parts.test["swa"].documents == parts.test["eng"].documents
    assert len(set(parts.test["eng"].documents)) == 2
    assert {text.split()[0] for text in parts.calibration["nep"].texts} == {"npi_Deva"}
    assert read_texts(source).select(["Swahili"]).languages == ["swa"]
    with pytest.raises(UnknownLanguage, match=r"flores200.* has no text in Tamil \(tam\)"):
        read_texts(source).select(["tam"])


def test_one_variety_of_a_language_is_read_and_the_others_are_named(tmp_path, library):
    codes = ["eng_Latn", "ace_Arab", "ace_Latn", "zho_Hant", "zho_Hans", "prs_Arab", "pes_Arab"]
    source = write_flores(tmp_path / "copy", codes)
    with pytest.warns(UserWarning, match="left out: ace_Arab abcd1234, prs_Arab abcd1234, zho_Hant abcd1234"):
        texts = read_texts(source)
    assert texts.parallel
    assert {code: texts[code].texts[0].split()[0] for code in texts.languages} == {
        "ace": "ace_Latn",
        "eng": "eng_Latn",
        "fas": "pes_Arab",
        "zho": "zho_Hans",
    }


def test_a_language_with_passages_missing_is_left_out(tmp_path, library):
    source = write_flores(tmp_path / "copy", ["eng_Latn", "swh_Latn", "tam_Taml"])
    write_rows(tmp_path / "copy" / "dev" / "tam_Taml.jsonl", [flores_row("tam_Taml", 0)])
    with pytest.warns(UserWarning, match="languages without all 8 passages are left out: tam"):
        assert read_texts(source).languages == ["eng", "swa"]


def test_a_passage_of_both_parts_is_only_tested(tmp_path, library):
    source = write_flores(tmp_path / "copy", ["eng_Latn", "swh_Latn"])
    rows = [flores_row("swh_Latn", number, text="Habari." if number == 101 else None) for number in range(100, 104)]
    write_rows(tmp_path / "copy" / "devtest" / "swh_Latn.jsonl", rows)
    rows = [flores_row("swh_Latn", number, text="Habari." if number == 2 else None) for number in range(4)]
    write_rows(tmp_path / "copy" / "dev" / "swh_Latn.jsonl", rows)
    with pytest.warns(UserWarning, match="1 calibration passages that are also in test"):
        parts = read_split(source)
    assert len(parts.calibration["eng"]) + len(parts.validation["eng"]) == 3
    assert len(parts.test["eng"]) == 4


def test_ntrex_has_a_column_per_language(tmp_path, library):
    columns = ["eng_Latn", "swa_Latn", "fil_Latn", "srp_Latn", "srp_Cyrl", "id"]
    rows = [{column: f"{column} {number}" for column in columns} for number in range(12)]
    path = tmp_path / "copy" / "data" / "test-00000-of-00001.parquet"
    path.parent.mkdir(parents=True)
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path)
    with pytest.warns(UserWarning, match="left out: srp_Latn"):
        texts = read_texts(f"ntrex128:{tmp_path / 'copy'}")
    assert texts.parallel
    assert set(texts.languages) == {"eng", "swa", "fil", "srp"}
    assert {text.partition(" ")[0] for text in texts["srp"].texts} == {"srp_Cyrl"}
    assert texts["eng"].texts.index("eng_Latn 11") == texts["swa"].texts.index("swa_Latn 11")


def test_the_declaration_in_its_largest_version(tmp_path, library):
    folder = tmp_path / "copy"
    folder.mkdir()
    rows = [("deu_1901", "deu", "Latn", number) for number in range(3)]
    rows += [("deu_1996", "deu", "Latn", number) for number in range(5)]
    rows += [("nan", "nan", "Latn", number) for number in range(4)]
    with (folder / "udhr-lid.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "iso639-3", "iso15924", "language", "sentence"])
        writer.writerows([id, code, script, "name", f"{id}, sentence {n}"] for id, code, script, n in rows)
    with pytest.warns(UserWarning, match="left out: deu_Latn deu_1901"):
        texts = read_texts(f"udhr:{folder}")
    assert not texts.parallel
    assert len(texts["nan"]) == 4
    assert texts["deu"].texts == tuple(f"deu_1996, sentence {number}" for number in range(5))


def belebele_row(dialect, link, number, passage):
    return {
        "link": link,
        "question_number": number,
        "flores_passage": f"{dialect}: {passage}",
        "question": "Why?",
        "mc_answer1": "a",
        "correct_answer_num": "1",
        "dialect": dialect,
        "ds": "2023-05-03",
    }


def test_belebele_passages_stand_once_and_align_by_article(tmp_path, library):
    questions = [
        ("a", 1, "first"),
        ("a", 2, "first"),
        ("b", 1, "second"),
        ("c", 1, "third"),
        ("d", 1, "x"),
        ("d", 2, "y"),
    ]
    for dialect, order in (("eng_Latn", 1), ("swh_Latn", -1)):
        rows = [belebele_row(dialect, f"https://{link}", number, text) for link, number, text in questions][::order]
        write_rows(tmp_path / "copy" / "data" / f"{dialect}.jsonl", rows)
    with pytest.warns(UserWarning, match="1 articles with more than one passage"):
        texts = read_texts(f"belebele:{tmp_path / 'copy'}")
    assert texts.parallel
    assert texts["swa"].texts == ("swh_Latn: first", "swh_Latn: second", "swh_Latn: third")
    assert texts["eng"].documents == texts["swa"].documents == ("https://a", "https://b", "https://c")


def test_a_copy_with_other_columns_or_without_files(tmp_path, library):
    write_rows(tmp_path / "copy" / "data" / "eng_Latn.jsonl", [{"text": "one"}])
    with pytest.raises(BrokenTexts, match=r"belebele:.* has no column 'link': give belebele:FOLDER with a copy"):
        read_texts(f"belebele:{tmp_path / 'copy'}")
    with pytest.raises(BrokenTexts, match=r"flores200:.* cannot be loaded .*: give flores200:FOLDER with a copy"):
        read_texts(f"flores200:{tmp_path / 'copy'}")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            ConnectionError("Couldn't reach 'mteb/NTREX' on the Hub"),
            "cannot be downloaded .*: connect to the hub, or give",
        ),
        (
            ValueError("Dataset 'mteb/NTREX' is a gated dataset on the Hub."),
            "accept them at https://.* 'hf auth login'",
        ),
    ],
)
def test_a_set_that_cannot_be_downloaded(monkeypatch, error, says):
    def fail(*_, **__):
        raise error

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=fail))
    with pytest.raises(BrokenTexts, match=f"ntrex128 .*{says}"):
        read_texts("ntrex128")


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"datasets is not installed: run pip install '\.\[datasets\]'"):
        read_texts("flores200")


def test_calibration_text_may_be_a_named_set(tmp_path, library):
    source = write_flores(tmp_path / "copy", ["eng_Latn", "swh_Latn"])
    whole = read_split("builtin").select(["eng", "swa"])
    chosen = calibration_split(source, whole, whole.test, seed=0)
    assert chosen.test is whole.test
    assert all(text.startswith("swh_Latn") for text in chosen.calibration["swa"].texts)
