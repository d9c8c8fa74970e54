import json
import os
import signal
import subprocess
import sys

import pytest

from laaciq.engine.lock import LOCK, FolderLock
from laaciq.errors import OutputConflict

# Takes the lock of a folder, says so, and ends as it is told: in order, or by a signal.
HOLDER = """
import os, sys, time
from pathlib import Path
from laaciq.engine.lock import FolderLock
lock = FolderLock(Path(sys.argv[1]), "laaciq run --bits 3")
if os.fork() == 0:
    os.close(1)
    time.sleep(20)  # outlives its parent
    os._exit(0)
print("held", flush=True)
sys.stdin.read()
lock.release()
"""


@pytest.fixture
def holder(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_is_refused_with_the_name_of_the_first(tmp_path, holder):
    with pytest.raises(OutputConflict) as refused:
        FolderLock(tmp_path, "laaciq run --bits 4")
    owner = json.loads((tmp_path / LOCK).read_text())
    assert str(refused.value) == (
        f"{tmp_path} is in use by 'laaciq run --bits 3', process {holder.pid} on {os.uname().nodename}, since {owner['since']}: "
        f"wait until that ends, or choose another folder"
    )


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, None])
def test_the_lock_of_a_process_that_ended_is_free(tmp_path, holder, end):
    if end is None:
        holder.stdin.close()
    else:
        holder.send_signal(end)
    holder.wait(timeout=20)
    lock = FolderLock(tmp_path, "laaciq run")
    assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
    lock.release()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"{", b'{"pid": 1}', b"\xff\x00", b"77\nhost\n"])
def test_the_file_of_a_lock_that_nobody_holds_is_taken_over(tmp_path, content):
    (tmp_path / LOCK).write_bytes(content)
    FolderLock(tmp_path, "laaciq run").release()


def test_within_a_process_too_one_writes_at_a_time(tmp_path):
    lock = FolderLock(tmp_path, "laaciq run")
    with pytest.raises(OutputConflict, match=f"process {os.getpid()} "):
        FolderLock(tmp_path, "laaciq run")
    lock.release()
    FolderLock(tmp_path, "laaciq run").release()
