import errno
import os
import stat

import pytest

from laaciq.engine.files import free_file, write_bytes, write_text
from laaciq.errors import OutputConflict, WriteFailed


def test_a_file_is_replaced_only_on_request_and_only_if_it_is_of_the_kind(tmp_path):
    path = tmp_path / "plan.json"

    def free(**options):
        return free_file(path, replaceable=lambda text: "plan" in text, **options)

    assert free() == path
    path.write_text("a plan, edited by hand")
    with pytest.raises(OutputConflict, match=r"plan\.json exists.*--overwrite"):
        free()
    assert free(overwrite=True) == path
    path.write_text("years of work")
    with pytest.raises(OutputConflict, match="was not written by this command"):
        free(overwrite=True)
    path.unlink()
    path.mkdir()
    with pytest.raises(OutputConflict, match="is a folder"):
        free(overwrite=True)


def test_a_link_is_followed_and_one_that_leads_nowhere_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OutputConflict, match="leads nowhere"):
        free_file(tmp_path / "link", overwrite=True, replaceable=lambda text: True)
    (tmp_path / "target").write_text("old")
    place = free_file(tmp_path / "link", overwrite=True, replaceable=lambda text: True)
    write_text(place, "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failing_disk_leaves_the_old_file_and_one_sentence(tmp_path, monkeypatch, call, number):
    path = tmp_path / "report.md"
    write_text(path, "old")

    def fail(*arguments, **options):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(WriteFailed, match=rf"report\.md cannot be written \({os.strerror(number)}\): .* again"):
        write_text(path, "new")
    monkeypatch.undo()
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("report.md", "old")]


def test_a_write_that_takes_only_a_part_is_continued(tmp_path, monkeypatch):
    whole = os.write
    monkeypatch.setattr(os, "write", lambda handle, content: whole(handle, content[:3]))
    write_bytes(tmp_path / "file", b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_files_have_the_permissions_that_the_user_gives_new_files(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "file", "")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
