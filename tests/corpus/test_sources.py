import json
import os
import sys
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet
import pytest

from laaciq.corpus import read_split, read_texts
from laaciq.errors import BrokenTexts, UnknownLanguage


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / f"{name}.txt").write_bytes(data)
    return folder


def test_equal_line_counts_are_parallel(tmp_path):
    texts = read_texts(write(tmp_path, eng="one\ntwo\n", sw="moja\nmbili"))
    assert texts.parallel
    assert texts["swa"].texts == ("moja", "mbili")
    assert texts["swa"].documents == texts["eng"].documents


def test_unequal_line_counts_are_not_parallel_and_blank_lines_are_dropped(tmp_path):
    texts = read_texts(write(tmp_path, eng="one\n\ntwo\n", swa="moja\n"))
    assert not texts.parallel
    assert texts["eng"].texts == ("one", "two")


def test_document_ids_come_from_the_folder(tmp_path):
    texts = read_texts(write(tmp_path, eng="one\ntwo\n", swa="moja\nmbili\n", documents="a\na\n"))
    assert texts["eng"].documents == ("a", "a")


def test_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path):
    texts = read_texts(write(tmp_path, eng=b"\xef\xbb\xbfone\r\ntwo\r\n", swa="moja\nmbili\n"))
    assert texts["eng"].texts == ("one", "two")


@pytest.mark.parametrize(
    ("files", "error", "says"),
    [
        ({}, BrokenTexts, "holds no <code>.txt"),
        ({"eng": ""}, BrokenTexts, "is empty"),
        ({"eng": " \n\n"}, BrokenTexts, "is empty"),
        ({"eng": b"caf\xe9\n"}, BrokenTexts, "not UTF-8"),
        ({"qqq": "text\n"}, UnknownLanguage, "unknown language 'qqq'"),
        ({"eng": "one\n", "en": "one\n"}, BrokenTexts, "two files for eng"),
        ({"eng": "one\ntwo\n", "swa": "moja\n", "documents": "a\nb\n"}, BrokenTexts, "misaligned"),
        ({"eng": "one\ntwo\nthree\n", "swa": "moja\n\ntatu\n"}, BrokenTexts, "line 2 of swa.txt is empty"),
    ],
)
def test_broken_folders_give_one_sentence(tmp_path, files, error, says):
    with pytest.raises(error, match=says):
        read_texts(write(tmp_path, **files))


def test_a_folder_may_hold_both_parts(tmp_path):
    write(tmp_path / "calibration", eng="one\ntwo\nthree\nfour\n")
    write(tmp_path / "test", eng="five\n")
    parts = read_split(tmp_path)
    assert parts.test["eng"].texts == ("five",)
    assert len(parts.calibration["eng"]) == 3
    assert len(parts.validation["eng"]) == 1


def test_a_passage_on_both_sides_is_refused(tmp_path):
    write(tmp_path / "calibration", eng="one\ntwo\n")
    write(tmp_path / "test", eng="two\n")
    with pytest.raises(BrokenTexts, match="in calibration and in test"):
        read_split(tmp_path)


RECORDS = [
    {"language": "en", "text": "two", "passage": 2, "document": None},
    {"language": "en", "text": "one", "passage": 1},
    {"language": "Swahili", "text": "moja", "passage": 1, "document": "d"},
    {"language": "Swahili", "text": "mbili", "passage": 2},
]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_records_are_aligned_by_passage(tmp_path, kind):
    path = tmp_path / f"texts.{kind}"
    if kind == "jsonl":
        path.write_text("\n".join(json.dumps(record) for record in RECORDS))
    else:
        pyarrow.parquet.write_table(pa.Table.from_pylist(RECORDS), path)
    texts = read_texts(path)
    assert texts.parallel
    assert texts["eng"].texts == ("one", "two")
    assert texts["swa"].texts == ("moja", "mbili")
    assert texts["swa"].documents == ("d", "2")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "not valid JSON"),
        ('{"text": "x"}', "no 'language'"),
        ('{"language": "eng", "text": " "}', "no 'text'"),
        ("3", "object"),
        ("null", "object"),
        ('{"language": "eng", "text": 3}', "no 'text'"),
        ('{"language": "eng", "text": "\\ud800"}', "not valid JSON"),
        ('{"language": "eng", "text": "a", "text": "b"}', "twice"),
        ('{"language": "eng", "text": "a", "passage": NaN}', "NaN or infinity"),
        ('{"language": "eng", "text": "a", "passage": [1]}', r"the passage \[1\]"),
        ('{"language": "eng", "text": "a", "document": {"a": 1}}', "the document"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_broken_records_are_named_by_number(tmp_path, line, says):
    path = tmp_path / "texts.jsonl"
    path.write_text(line)
    with pytest.raises(BrokenTexts, match=says):
        read_texts(path)


def test_what_is_not_parquet_is_refused(tmp_path):
    path = tmp_path / "texts.parquet"
    path.write_text("no")
    with pytest.raises(BrokenTexts, match="not a Parquet file"):
        read_texts(path)


@pytest.mark.parametrize(
    "rows",
    [
        [{"language": "eng"}],
        [{"text": "one"}],
        [{"language": "eng", "text": 3}],
        [{"language": "eng", "text": b"one"}],
        [{"language": "eng", "text": ["one"]}],
        [{"language": "eng", "text": "one", "passage": 0.5}],
    ],
)
def test_parquet_with_other_columns_is_refused(tmp_path, rows):
    path = tmp_path / "texts.parquet"
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path)
    with pytest.raises(BrokenTexts, match=r"texts\.parquet, record 1"):
        read_texts(path)


def test_a_dataset_that_does_not_load(monkeypatch):
    def fail(*_, **__):
        raise KeyError("test")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=fail))
    with pytest.raises(BrokenTexts, match=r"datasets:any .*KeyError"):
        read_texts("datasets:any")
    monkeypatch.setitem(
        sys.modules, "datasets", SimpleNamespace(load_dataset=lambda *_, **__: [{"language": "eng"}, 3])
    )
    with pytest.raises(BrokenTexts, match="record 1 has no 'text'"):
        read_texts("datasets:any")


@pytest.mark.parametrize("kind", ["pipe", "folder", "loop", "outside"])
def test_every_file_is_a_file_of_the_folder(tmp_path, kind):
    folder = write(tmp_path / "texts", eng="one\n")
    (tmp_path / "outside.txt").write_text("moja")
    path = folder / "swa.txt"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path if kind == "loop" else tmp_path / "outside.txt")
    with pytest.raises(BrokenTexts, match=r"swa\.txt is a (named pipe|folder|symbolic link|link)"):
        read_texts(folder)


def test_a_file_name_that_is_not_utf8(tmp_path):
    folder = write(tmp_path, eng="one\n")
    (folder / "eng.txt").rename(folder / "\udcff.txt")
    with pytest.raises(UnknownLanguage):
        read_texts(folder)


def test_the_fingerprint_follows_the_content_alone(tmp_path):
    first = read_texts(write(tmp_path / "a", eng="one\ntwo\n"))
    assert first.fingerprint == read_texts(write(tmp_path / "b", eng="one\ntwo\n")).fingerprint
    assert first.fingerprint != read_texts(write(tmp_path / "c", eng="one\ntwo.\n")).fingerprint


def test_selecting_a_language_that_is_not_there(tmp_path):
    with pytest.raises(UnknownLanguage, match="no text in Swahili"):
        read_texts(write(tmp_path, eng="one\n")).select(["swa"])
