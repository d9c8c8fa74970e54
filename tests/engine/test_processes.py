"""Processes of ours import nothing from the folder in which they are started."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from laaciq.engine.processes import start_module


def test_a_stranger_s_folder_offers_modules_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = f"open({str(tmp_path / 'ran')!r}, 'w')\n"
    for name in (
        "json.py",
        "transformers.py",
        "jinja2.py",
        "sitecustomize.py",
        "usercustomize.py",
        "laaciq/__init__.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with start_module("laaciq.scoring.chat_templates", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:
        assert child.communicate()[0] == "\n"
    assert child.returncode == 0
    assert not (tmp_path / "ran").exists()


def test_variables_are_added_to_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN", "by the user")
    with start_module("sysconfig", environment={"PYTHONHASHSEED": "1"}, stdout=subprocess.PIPE) as child:
        assert "Platform" in child.communicate()[0]
    assert child.returncode == 0
