import os
import shutil
import signal
from itertools import count

import pytest

from laaciq.engine.file_list import FILE_LIST, STAGING, add_file, read_list
from laaciq.engine.output import OutputFolder
from laaciq.errors import OutputConflict


def opened(path):
    return OutputFolder(path, command="laaciq run")


def write_all(path, *names):
    with opened(path) as output, output.replacing_all() as new:
        for name in names:
            (new / name).parent.mkdir(exist_ok=True, parents=True)
            (new / name).write_bytes(os.fsencode(name))


def contents(folder):
    """Files with their text and links, without the list."""
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_text()
        for path in folder.rglob("*")
        if path.name != FILE_LIST and (path.is_symlink() or path.is_file())
    }


def put(path, text="years of work"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


FOREIGN = ["thesis.txt", "run.json", "sub/thesis.txt", ".partial-mine", ".laaciq-staging/mine", "keys/a.key"]


@pytest.mark.parametrize("name", FOREIGN)
def test_a_folder_of_others_is_left_as_it_is(tmp_path, name):
    put(tmp_path / name)
    with pytest.raises(OutputConflict, match=rf"did not write \({name}\): choose another folder"):
        opened(tmp_path)
    assert contents(tmp_path) == {name: "years of work"}
    assert not (tmp_path / FILE_LIST).exists()


@pytest.mark.parametrize(
    "name", [name for name in FOREIGN if ".laaciq" not in name] + ["a.txt.bak", "checkpoint/notes.md"]
)
def test_so_is_one_of_ours_to_which_others_added_something(tmp_path, name):
    with opened(tmp_path) as output:
        output.write("a.txt", b"ours")
        with output.replacing("checkpoint") as new:
            (new / "config.json").write_text("ours")
    put(tmp_path / name)
    before = contents(tmp_path)
    with pytest.raises(OutputConflict, match=rf"did not write \({name}\)"):
        opened(tmp_path)
    assert contents(tmp_path) == before


def test_links_are_not_ours_even_under_our_names(tmp_path):
    out, target = tmp_path / "out", tmp_path / "target"
    put(target / "a.json")
    with opened(out) as output:
        output.write("trials/a.json", b"ours")
    (out / "trials/a.json").unlink()
    (out / "trials").rmdir()
    (out / "trials").symlink_to(target)
    with pytest.raises(OutputConflict, match=r"did not write \(trials\)"):
        opened(out)
    assert contents(target) == {"a.json": "years of work"}


def test_a_name_that_somebody_took_in_the_meantime_is_refused(tmp_path):
    with opened(tmp_path) as output:
        put(tmp_path / "report.md")
        with pytest.raises(OutputConflict, match=r"did not write \(report\.md\)"):
            output.write("report.md", b"ours")
        with output.replacing("checkpoint") as new:
            (new / "config.json").write_text("old")
        put(tmp_path / "checkpoint/notes.md")
        with pytest.raises(OutputConflict, match=r"did not write \(notes\.md\)"), output.replacing("checkpoint") as new:
            (new / "config.json").write_text("new")
    assert contents(tmp_path) == {
        "report.md": "years of work",
        "checkpoint/config.json": "old",
        "checkpoint/notes.md": "years of work",
    }


@pytest.mark.parametrize("line", ["../thesis.txt", "/etc/passwd", "a/../../b", "", "%00", "%2E%2E/thesis.txt"])
def test_a_list_that_leads_outside_is_refused(tmp_path, line):
    out = tmp_path / "out"
    put(tmp_path / "thesis.txt")
    put(out / FILE_LIST, f"{line}\n")
    with pytest.raises(OutputConflict, match=r"laaciq-files names .*: choose another folder"):
        opened(out)
    assert (tmp_path / "thesis.txt").exists()


@pytest.mark.parametrize("kind", ["file", "dangling", "loop", "within a file"])
def test_what_is_no_folder_is_refused_in_a_sentence(tmp_path, kind):
    out = tmp_path / "out"
    says = {
        "file": "is a file",
        "dangling": "which does not exist",
        "loop": "symbolic links",
        "within a file": "directory",
    }
    if kind == "dangling":
        out.symlink_to(tmp_path / "nowhere")
    elif kind == "loop":
        out.symlink_to(out)
    else:
        put(out)
    with pytest.raises(OutputConflict, match=says[kind]):
        opened(out / "sub" if kind == "within a file" else out)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_link_to_a_folder_works(tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "target")
    for name in ("a", "b"):
        write_all(tmp_path / "out", name)
    assert (tmp_path / "out").is_symlink()
    assert contents(tmp_path / "target") == {"b": "b"}


def test_a_folder_in_which_nothing_was_written_goes_and_nothing_else_stays(tmp_path):
    opened(tmp_path / "a/b").close()
    assert not list(tmp_path.iterdir())
    (tmp_path / "mine").mkdir()
    opened(tmp_path / "mine").close()
    assert not list((tmp_path / "mine").iterdir())
    with opened(tmp_path / "mine") as output:
        output.write("a.txt", b"ours")
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {"a.txt", FILE_LIST}


def test_a_failing_writer_leaves_what_was_there(tmp_path):
    write_all(tmp_path / "out", "old")
    with pytest.raises(RuntimeError), opened(tmp_path / "out") as output, output.replacing_all() as new:
        (new / "new").write_text("new")
        raise RuntimeError
    assert contents(tmp_path / "out") == {"old": "old"}
    write_all(tmp_path / "out", "a", "sub/b")
    write_all(tmp_path / "out", "c")
    assert contents(tmp_path / "out") == {"c": "c"}
    assert not (tmp_path / "out/sub").exists()


def test_a_second_writer_is_refused_and_changes_nothing(tmp_path):
    with opened(tmp_path) as output:
        output.write("a.txt", b"ours")
        with pytest.raises(OutputConflict, match="is in use by 'laaciq run', process"):
            opened(tmp_path)
        output.write("b.txt", b"ours")
    assert contents(tmp_path) == {"a.txt": "ours", "b.txt": "ours"}


@pytest.mark.parametrize("edited", [False, True])
def test_a_card_is_ours_until_it_is_edited(tmp_path, edited):
    with opened(tmp_path) as output, output.replacing("checkpoint") as new:
        (new / "config.json").write_text("ours")
    add_file(tmp_path / "checkpoint", "README.md", b"first")
    add_file(tmp_path / "checkpoint", "README.md", b"second")
    if edited:
        put(tmp_path / "checkpoint/README.md")
        with pytest.raises(OutputConflict, match=r"did not write \(checkpoint/README\.md\)"):
            opened(tmp_path)
    else:
        opened(tmp_path).close()


def test_names_of_any_kind_are_listed(tmp_path):
    names = ["a b.txt", "100%.txt", "line\nbreak", "日本語", os.fsdecode(b"\xff.txt"), "sub/deeper/a"]
    write_all(tmp_path / "out", *names)
    assert set(read_list(tmp_path / "out")) == set(names)
    opened(tmp_path / "out").close()


def killed_before(place, act):
    """In a process of its own: `act`, killed before the call of the operating system at this place. Did it end without reaching that?"""
    child = os.fork()
    if not child:
        counter = count()

        def counted(call):
            def called(*arguments, **options):
                if next(counter) == place:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*arguments, **options)

            return called

        for name in ("open", "write", "fsync", "replace", "rename", "unlink", "mkdir", "rmdir", "truncate"):
            setattr(os, name, counted(getattr(os, name)))
        try:
            act()
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status == 0


def test_killed_at_any_call_of_the_system_the_old_or_the_new_is_whole(tmp_path, monkeypatch):
    """At every place: a file, a folder and a whole output are replaced, and the next opening sees one state of each."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # slow, and it protects from power failures alone

    def act():
        with opened(out / "run") as output:
            output.write("a.txt", b"new")
            output.write("b.txt", b"new")
            with output.replacing("checkpoint") as new:
                (new / "other.json").write_text("new")
            output.remove(["b.txt"])
        write_all(out / "whole", "b")

    with opened(tmp_path / "before/run") as output:
        output.write("a.txt", b"old")
        with output.replacing("checkpoint") as new:
            (new / "config.json").write_text("old")
    write_all(tmp_path / "before/whole", "a", "sub/a")
    for place in count():
        out = tmp_path / str(place)
        shutil.copytree(tmp_path / "before", out)
        ended = killed_before(place, act)
        for name in ("run", "whole"):
            opened(out / name).close()
            assert not (out / name / STAGING).exists()
        run = contents(out / "run")
        assert run.pop("a.txt") in ("old", "new")
        assert run.pop("b.txt", "new") == "new"
        # Between the old folder and the new one there is none: what it held is computed again.
        assert run in ({"checkpoint/config.json": "old"}, {}, {"checkpoint/other.json": "new"})
        assert contents(out / "whole") in ({"a": "a", "sub/a": "sub/a"}, {"b": "b"})
        if ended:
            break
    assert place > 40
    assert (run, contents(out / "whole")) == ({"checkpoint/other.json": "new"}, {"b": "b"})
