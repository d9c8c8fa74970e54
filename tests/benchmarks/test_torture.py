"""Commands that are killed, and commands whose disk fails, in a reduced form: `python -m benchmarks.torture` does it at length."""

import subprocess
import sys

from benchmarks.outcomes import read_rounds


def torture(folder, *words):
    """In a process of its own: it forks, and threads that other tests started would not survive that."""
    command = [sys.executable, "-m", "benchmarks.torture", *words, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rounds = [made for path in folder.rglob(f"{words[0]}.jsonl") for made in read_rounds(path)]
    assert all(made.failure is None for made in rounds)
    return rounds


def test_a_run_that_is_killed_again_and_again_ends_in_the_same_json(tmp_path):
    rounds = torture(tmp_path, "kills", "10", "--commands", "run,quantize")
    assert sum(made.injected.total() for made in rounds) >= 10


def test_a_command_overcomes_a_failure_of_each_of_its_writes(tmp_path):
    first = torture(tmp_path, "faults", "--commands", "tasks", "--part", "1/2")
    rounds = torture(tmp_path, "faults", "--commands", "tasks", "--part", "2/2")
    assert abs(len(rounds) - 2 * len(first)) <= 1
    kinds = {kind for made in rounds for kind in made.injected}
    assert {"ENOSPC in writing", "EIO in fsync", "EIO in moving", "a torn file, then a kill"} <= kinds
