import os

import pytest

from laaciq.engine.input_files import Refusal, file_inside, is_file, is_folder, is_there, read_text, require_file
from laaciq.errors import BadOption

REFUSAL = Refusal(BadOption, "give another one")


@pytest.fixture
def folder(tmp_path):
    """A folder with a file, beside a file that is not in it."""
    (tmp_path / "outside.txt").write_text("outside")
    (tmp_path / "folder/sub").mkdir(parents=True)
    (tmp_path / "folder/a.txt").write_text("inside")
    return tmp_path / "folder"


def no_file(path, kind):
    path.unlink(missing_ok=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "dangling":
        path.symlink_to(path.with_name("nowhere"))
    elif kind == "device":
        path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("folder", "is a folder"),
        ("pipe", "is a named pipe"),
        ("loop", "is a symbolic link that leads back to itself"),
        ("dangling", "is a symbolic link to nothing"),
        ("device", "is a device"),
        ("absent", "is missing"),
    ],
)
def test_what_is_no_file_is_named_and_not_opened(folder, kind, says):
    no_file(folder / "a.txt", kind)
    with pytest.raises(BadOption, match=rf"a\.txt {says}.*: give another one"):
        read_text(folder / "a.txt", REFUSAL)


def test_a_file_that_may_not_be_read(folder, monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    with pytest.raises(BadOption, match="read by this user"):
        read_text(folder / "a.txt", REFUSAL)


@pytest.mark.parametrize("name", ["a\0b", "a" * 5000])
def test_names_that_no_file_can_have(folder, name):
    with pytest.raises(BadOption, match=r"possible file name|File name too long"):
        read_text(folder / name, REFUSAL)
    assert not is_there(folder / "a\0b")
    assert not is_file(folder / name)
    assert not is_folder(folder / name)


def test_links_stay_in_their_folder(folder):
    (folder / "sub/link.txt").symlink_to("../a.txt")
    assert read_text(folder / "sub/link.txt", REFUSAL, within=folder) == "inside"
    (folder / "out.txt").symlink_to("../outside.txt")
    assert read_text(folder / "out.txt", REFUSAL) == "outside"
    with pytest.raises(BadOption, match="leads out of its folder"):
        read_text(folder / "out.txt", REFUSAL, within=folder)
    (folder / "other").symlink_to("..")
    with pytest.raises(BadOption, match="leads out of its folder"):
        require_file(folder / "other/outside.txt", REFUSAL, within=folder)


def test_the_cache_of_the_hub_links_to_blobs_beside_its_snapshots(tmp_path):
    snapshot = tmp_path / "models--org--name/snapshots/abc"
    snapshot.mkdir(parents=True)
    blobs = tmp_path / "models--org--name/blobs"
    blobs.mkdir()
    (blobs / "123").write_text("blob")
    (snapshot / "a.txt").symlink_to("../../blobs/123")
    assert read_text(snapshot / "a.txt", REFUSAL, within=snapshot) == "blob"
    # Blobs that are elsewhere are not those of the repository.
    blobs.rename(tmp_path / "elsewhere")
    blobs.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadOption, match="leads out of its folder"):
        read_text(snapshot / "a.txt", REFUSAL, within=snapshot)


@pytest.mark.parametrize("name", [3, None, "", " ", "/etc/passwd", "../a.txt", "sub/../../a.txt", "a\0b"])
def test_names_in_files_stay_in_the_folder(folder, name):
    with pytest.raises(BadOption, match="names"):
        file_inside(folder, name, REFUSAL, named_in=folder / "index.json")


def test_names_in_files(folder):
    assert file_inside(folder, "sub/a.txt", REFUSAL, named_in=folder / "index.json") == folder / "sub/a.txt"


def test_size_is_bounded(folder):
    with pytest.raises(BadOption, match="has 6 bytes"):
        read_text(folder / "a.txt", REFUSAL, most=5)


def test_text_is_utf8_and_lines_end_in_one_way(folder):
    (folder / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n")
    assert read_text(folder / "a.txt", REFUSAL) == "one\ntwo\nthree\n"
    (folder / "a.txt").write_bytes(b"caf\xe9")
    with pytest.raises(BadOption, match=r"is not UTF-8 \(byte 3\)"):
        read_text(folder / "a.txt", REFUSAL)
