import pytest


@pytest.fixture(autouse=True)
def elsewhere(tmp_path_factory, monkeypatch):
    """Commands write their default folders into the current one: not into the checkout."""
    monkeypatch.chdir(tmp_path_factory.mktemp("current"))
