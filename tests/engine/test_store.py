import json

import pytest
from pydantic import BaseModel

from laaciq.engine.files import atomic_folder, write_text
from laaciq.engine.store import RunFolder, key_of
from laaciq.errors import OutputConflict


class Answer(BaseModel):
    value: int


def opened(path):
    return RunFolder(path, description={"command": "test"})


def test_a_result_is_computed_once_for_a_key(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return Answer(value=len(calls))

    assert opened(tmp_path / "run").result("a.json", Answer, "key", compute).value == 1
    assert opened(tmp_path / "run").result("a.json", Answer, "key", compute).value == 1
    assert opened(tmp_path / "run").result("a.json", Answer, "other", compute).value == 2


@pytest.mark.parametrize("damage", ["", '{"value": 7}', '{"val'])
def test_a_touched_result_is_computed_again(tmp_path, damage):
    store = opened(tmp_path / "run")
    store.result("a.json", Answer, "key", lambda: Answer(value=1))
    (tmp_path / "run" / "a.json").write_text(damage)
    assert store.result("a.json", Answer, "key", lambda: Answer(value=2)).value == 2


def test_a_result_without_its_key_is_not_trusted(tmp_path):
    """Keys are written after results: a run killed between the two computes again."""
    store = opened(tmp_path / "run")
    write_text(tmp_path / "run" / "a.json", json.dumps({"value": 1}))
    assert store.result("a.json", Answer, "key", lambda: Answer(value=2)).value == 2


def test_a_folder_that_holds_something_else_is_left_as_it_is(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputConflict, match="holds something else"):
        opened(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(OutputConflict, match="is a file"):
        opened(tmp_path / "run")


def test_leftovers_of_a_killed_run_are_swept(tmp_path):
    opened(tmp_path / "run")
    (tmp_path / "run" / ".partial-abc").write_text("half")
    (tmp_path / "run" / ".partial-folder").mkdir()
    opened(tmp_path / "run")
    assert not list((tmp_path / "run").glob(".partial-*"))


def test_a_failing_writer_leaves_what_was_there(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "old").write_text("old")
    with pytest.raises(RuntimeError), atomic_folder(tmp_path / "folder") as partial:
        (partial / "new").write_text("new")
        raise RuntimeError
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_keys_follow_their_parts():
    assert key_of("a", {"x": 1, "y": 2}) == key_of("a", {"y": 2, "x": 1})
    assert key_of("a", 1) != key_of("a", 2)
