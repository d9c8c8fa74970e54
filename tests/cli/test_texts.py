import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from laaciq.cli import app
from laaciq.errors import BadOption


def test_builtin_texts_as_json():
    result = CliRunner().invoke(app, ["texts", "--json", "--languages", "eng,Swahili"])
    table = json.loads(result.stdout)
    assert [row["language"] for row in table["languages"]] == ["eng", "swa"]
    assert table["parallel"]


def test_builtin_texts_as_table():
    result = CliRunner().invoke(app, ["texts"])
    assert result.exit_code == 0
    assert "Amharic" in result.stdout


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\xff"])
def test_a_broken_folder_is_one_sentence_and_status_2(tmp_path, content):
    """Through the real program: no traceback may reach the user."""
    if content is not None:
        (tmp_path / "eng.txt").write_bytes(content)
    result = subprocess.run(
        [sys.executable, "-m", "laaciq", "texts", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("laaciq: ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("languages", ["", " , "])
def test_no_language_is_named(languages):
    result = CliRunner().invoke(app, ["texts", "--languages", languages])
    assert isinstance(result.exception, BadOption)
    assert "--languages names no language" in str(result.exception)
