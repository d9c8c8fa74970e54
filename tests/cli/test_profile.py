import json

from typer.testing import CliRunner

from laaciq.cli import app
from laaciq.profiling.results import Profile
from tests.tiny import save_tiny


def test_a_profile_is_a_folder_that_screening_reads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_tiny("llama", tmp_path / "model")
    words = ["profile", "model", "--languages", "eng,swa", "--passages", "2"]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    # Nothing is dropped into the current folder.
    assert {path.name for path in tmp_path.iterdir()} == {"model", "laaciq-runs"}
    (folder,) = (tmp_path / "laaciq-runs").iterdir()
    assert {"profile.json", "report.html", "plots", "recipe.yaml"} <= {path.name for path in folder.iterdir()}
    assert f"Next: laaciq screen laaciq-runs/{folder.name}\n" in shown.stdout
    result = Profile.model_validate_json((folder / "profile.json").read_text())
    assert "κ_eff" in result._repr_html_() and "swa" in result._repr_html_()
    screened = CliRunner().invoke(app, ["screen", str(folder), "--json"])
    assert json.loads(screened.stdout)["risk"] in ("LOW", "MODERATE", "HIGH")
