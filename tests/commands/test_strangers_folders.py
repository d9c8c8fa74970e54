"""Plans and run folders of strangers name no folder elsewhere, and have nothing removed there."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from urllib.parse import quote

import pytest

from laaciq.engine.file_list import FILE_LIST
from laaciq.engine.run_folder import RunFolder
from laaciq.errors import LaaciqError
from laaciq.quantization.plan import PlanSet
from tests.report.test_report import PLAN


@pytest.mark.parametrize("name", ["..", "../checkpoint", "/etc", "a/b", "a\0b"])
def test_plans_name_no_folder_elsewhere(name: str) -> None:
    with pytest.raises(ValueError, match="no name of a checkpoint"):
        PlanSet(plans={name: PLAN})


@pytest.mark.parametrize("outside", ["../victim", "{place}/victim", "link/victim"])
def test_a_run_s_folder_cannot_have_other_files_removed(tmp_path: Path, outside: str) -> None:
    """It claims to replace another run, and lists a file elsewhere as a result of that."""
    (tmp_path / "elsewhere").mkdir()
    victims = [tmp_path / "victim", tmp_path / "elsewhere/victim"]
    for victim in victims:
        victim.write_text("x")
    run = tmp_path / "run"
    store = RunFolder(run, description={"command": "laaciq run"})
    store.write("mine.txt", "x")
    store.close()
    marker = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(marker | {"replacing": True}))
    if outside.startswith("link"):
        (run / "link").symlink_to(tmp_path / "elsewhere")
    name = outside.format(place=tmp_path)
    (run / f"keys/{quote(name, safe='')}.key").write_text("0 0")
    with (run / FILE_LIST).open("a") as listed:
        listed.write(f"{quote(name)}\n{quote('keys/' + quote(name, safe='') + '.key')}\n")
    with contextlib.suppress(LaaciqError):
        again = RunFolder(run, description={"command": "laaciq run"})
        again.finish()
        again.close()
    assert all(victim.exists() for victim in victims)
