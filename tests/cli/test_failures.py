"""What the machine lacks ends a command with one sentence and status 2; a fault of the software with a traceback and status 1."""

import errno
import os

import pytest

from laaciq import cli


def ended(monkeypatch, capsys, error):
    def raising(**options):
        raise error

    monkeypatch.setattr(cli, "app", raising)
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "says"),
    [
        *(
            (OSError(number, os.strerror(number), "run/a.json"), f"{os.strerror(number)} (run/a.json)")
            for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO)
        ),
        (MemoryError(), "there was too little memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "there was too little memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "there was too little GPU memory"),
    ],
    ids=str,
)
def test_one_sentence_and_status_2(monkeypatch, capsys, error, says):
    status, printed = ended(monkeypatch, capsys, error)
    assert status == 2
    assert printed.startswith(f"laaciq: {says}: ")
    assert printed.endswith("then run the same command again\n")
    assert printed.count("\n") == 1


def test_a_fault_of_the_software_is_no_sentence(monkeypatch, capsys):
    status, printed = ended(monkeypatch, capsys, KeyError("missing"))
    assert status == 1
    assert "Traceback" in printed
