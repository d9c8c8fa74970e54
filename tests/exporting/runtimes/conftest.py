"""Tests in the runtimes themselves, which `make test-runtimes` sets up. What they compared is printed at the end."""

import pytest

_COMPARED = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == "runtimes":
            item.add_marker(pytest.mark.runtimes)


@pytest.fixture(scope="session")
def compared(request):
    """Lines that are printed when all tests are done."""
    return request.config.stash.setdefault(_COMPARED, [])


def pytest_terminal_summary(terminalreporter, config):
    if lines := config.stash.get(_COMPARED, []):
        terminalreporter.section("compared")
        for line in lines:
            terminalreporter.write_line(line)
