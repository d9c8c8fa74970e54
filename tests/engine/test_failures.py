import errno
import os
import resource

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from laaciq.engine.failures import explained
from laaciq.errors import TooLittleMemory, WriteFailed


def raised(act):
    with pytest.raises(Exception) as caught:
        act()
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        raised(lambda: np.empty(2**60, dtype=np.uint8)),
        raised(lambda: torch.empty(2**60, dtype=torch.uint8)),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_too_little_memory(error):
    failure = explained(error)
    assert isinstance(failure, TooLittleMemory)
    assert str(failure).startswith("there was too little memory: close other programs")


def test_too_little_memory_of_a_gpu_is_told_apart():
    failure = explained(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."))
    assert isinstance(failure, TooLittleMemory)
    assert "too little GPU memory" in str(failure)


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.ENOSPC, "free some space"), (errno.EDQUOT, "quota"), (errno.EROFS, "choose a folder"), (errno.EIO, "disk")],
)
def test_what_a_disk_lacks(number, advice):
    failure = explained(OSError(number, os.strerror(number), "/here/file"))
    assert isinstance(failure, WriteFailed)
    assert str(failure).startswith(f"{os.strerror(number)} (/here/file): ")
    assert advice in str(failure)
    assert str(failure).endswith("then run the same command again")


def test_a_library_in_rust_that_met_the_end_of_the_disk(tmp_path):
    """The limit on the size of files is a full disk that a test can have."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        error = raised(lambda: save_file({"weights": torch.zeros(100)}, tmp_path / "file"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not isinstance(error, OSError)
    assert str(explained(error)).startswith("File too large: raise the limit")


@pytest.mark.parametrize("error", [ValueError("no such key"), RuntimeError("shapes differ"), FileNotFoundError(2, "")])
def test_faults_of_the_software_are_not_blamed_on_the_machine(error):
    assert explained(error) is None
