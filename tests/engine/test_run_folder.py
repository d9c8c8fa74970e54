import os

import pytest
from pydantic import BaseModel

from laaciq.engine.progress import Progress
from laaciq.engine.run_folder import RunFolder, read_marker
from laaciq.engine.whole_output import write_whole
from laaciq.errors import OutputConflict


class Answer(BaseModel):
    value: int


def opened(path, command="laaciq run", **options):
    return RunFolder(path, description={"command": command}, **options)


def answer(value):
    return lambda: Answer(value=value)


def contents(folder):
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".key"}
    return {name for name in files if ".laaciq-" not in name}


@pytest.mark.parametrize("damage", ["", '{"value": 7}', '{"val'])
def test_an_edited_result_is_computed_again(tmp_path, damage):
    store = opened(tmp_path / "run")
    store.result("a.json", Answer, "key", answer(1))
    (tmp_path / "run" / "a.json").write_text(damage)
    assert store.result("a.json", Answer, "key", answer(2)).value == 2


@pytest.mark.parametrize("content", [b"", b"\xc1\xff\x00" * 20, b"key", "κλειδί".encode()])
def test_a_key_of_random_bytes_is_not_trusted(tmp_path, content):
    store = opened(tmp_path / "run")
    store.keep("a.json", Answer(value=1), "key")
    (tmp_path / "run/keys/a.json.key").write_bytes(content)
    assert store.result("a.json", Answer, "key", answer(2)).value == 2
    assert store.result("a.json", Answer, "key", answer(3)).value == 2


@pytest.mark.parametrize("name", ["a.json", "keys/a.json.key"])
@pytest.mark.parametrize("kind", ["pipe", "outside"])
def test_what_is_no_file_of_the_run_is_not_read(tmp_path, name, kind):
    store = opened(tmp_path / "run")
    store.keep("a.json", Answer(value=1), "key")
    path = tmp_path / "run" / name
    (tmp_path / "outside").write_bytes(path.read_bytes())
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / "outside")
    with pytest.raises(OutputConflict, match=r"is a (named pipe|link)"):
        store.result("a.json", Answer, "key", answer(2))


@pytest.mark.parametrize(
    "marker",
    [
        *("null", "[]", "{}", "[" * 100_000, '{"laaciq": "1", "finished": "no"}', '{"finished": true}'),
        *('{"laaciq": "1", "finished": true, "command": 3}', '{"laaciq": "\\ud800", "finished": true}'),
    ],
)
def test_a_marker_that_says_nothing(tmp_path, marker):
    (tmp_path / "run.json").write_text(marker)
    with pytest.raises(OutputConflict, match=r"run\.json"):
        read_marker(tmp_path)


def test_a_result_without_its_key_is_not_trusted(tmp_path):
    """Keys are written after results: a run killed between the two computes again."""
    store = opened(tmp_path / "run")
    store.keep("a.json", Answer(value=1), "key")
    (tmp_path / "run/keys/a.json.key").unlink()
    assert store.result("a.json", Answer, "key", answer(2)).value == 2


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_is_no_run_is_left_as_it_is(tmp_path, overwrite):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputConflict, match=r"did not write \(thesis\.txt\)"):
        opened(tmp_path, overwrite=overwrite)
    assert contents(tmp_path) == {"thesis.txt"}
    with pytest.raises(OutputConflict, match="is a file"):
        opened(tmp_path / "thesis.txt", overwrite=overwrite)


def test_the_same_command_repeats_and_stays_finished_if_it_computes_nothing(tmp_path):
    store = opened(tmp_path)
    assert not read_marker(tmp_path)["finished"]
    store.result("a.json", Answer, "key", answer(1))
    store.finish()
    store.close()
    again = opened(tmp_path)
    assert again.result("a.json", Answer, "key", answer(2)).value == 1
    assert read_marker(tmp_path)["finished"]
    # The model has changed, say: from the first new result to the end the folder is a mixture.
    again.result("a.json", Answer, "other", answer(2))
    assert not read_marker(tmp_path)["finished"]
    again.finish()
    assert read_marker(tmp_path)["finished"]


@pytest.mark.parametrize("state", ["finished", "unfinished"])
def test_another_command_is_refused_by_name(tmp_path, state):
    store = opened(tmp_path, "laaciq run --bits 4")
    store.result("a.json", Answer, "key", answer(1))
    if state == "finished":
        store.finish()
    store.close()
    before = contents(tmp_path), read_marker(tmp_path)
    with pytest.raises(
        OutputConflict, match=rf"the {state} 'laaciq run --bits 4', and this is 'laaciq run --bits 3'.*--overwrite"
    ):
        opened(tmp_path, "laaciq run --bits 3")
    assert (contents(tmp_path), read_marker(tmp_path)) == before


def test_overwriting_keeps_what_is_still_valid_and_removes_the_rest_at_the_end(tmp_path):
    store = opened(tmp_path, "laaciq run --bits 4")
    for name in ("shared.json", "measurements/eng.json"):
        store.keep(name, Answer(value=4), "4 bits")
    store.folder("checkpoint", "4 bits", lambda folder: (folder / "config.json").write_text("4"))
    store.write("report.md", "4 bits")
    store.finish()
    store.close()

    store = opened(tmp_path, "laaciq run --bits 3", overwrite=True)
    assert store.result("shared.json", Answer, "4 bits", answer(3)).value == 4
    store.close()
    # The same command resumes, with or without the option.
    store = opened(tmp_path, "laaciq run --bits 3")
    store.result("shared.json", Answer, "4 bits", answer(3))
    store.result("plans.json", Answer, "3 bits", answer(3))
    assert {"measurements/eng.json", "checkpoint/config.json"} <= contents(tmp_path)
    store.finish()
    assert contents(tmp_path) == {"run.json", "shared.json", "plans.json"}
    assert not (tmp_path / "measurements").exists()
    assert read_marker(tmp_path)["command"] == "laaciq run --bits 3"
    assert not store.valid("measurements/eng.json", "4 bits")


def test_a_run_s_folder_is_no_place_for_other_results_and_the_other_way_round(tmp_path):
    store = opened(tmp_path / "run")
    store.keep("a.json", Answer(value=1), "key")
    store.close()
    options = {"command": "laaciq tasks", "key": "", "overwrite": True, "progress": Progress()}
    with pytest.raises(OutputConflict, match="is the folder of a run"):
        write_whole(tmp_path / "run", Answer, lambda folder, parts: Answer(value=2), **options)
    write_whole(tmp_path / "whole", Answer, lambda folder, parts: Answer(value=2), **options)
    with pytest.raises(OutputConflict, match="the result of another command"):
        opened(tmp_path / "whole", overwrite=True)


def test_an_unreadable_marker_is_refused(tmp_path):
    store = opened(tmp_path)
    store.keep("a.json", Answer(value=1), "key")
    store.close()
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(OutputConflict, match=r"run\.json is not valid JSON"):
        opened(tmp_path, overwrite=True)


def test_a_command_that_kept_nothing_leaves_nothing(tmp_path):
    store = opened(tmp_path / "run")
    store.write("recipe.yaml", "bits: 3")
    store.close()
    assert not (tmp_path / "run").exists()
