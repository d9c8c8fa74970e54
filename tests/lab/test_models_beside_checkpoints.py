"""Models of the lab that are no checkpoints: planted outliers, and figures of training variants."""

import numpy as np
import pytest

import laaciq
from laaciq import reference
from laaciq.commands import run_lab
from laaciq.commands.settings import Settings
from laaciq.engine.progress import Progress
from laaciq.errors import BadOption
from laaciq.models import find_model, load
from laaciq.options import LabOptions
from laaciq.studies.sensitivity import pooled_kurtosis
from tests.lab.simulated import variants
from tests.tiny import save_tiny

FEW = {"passages": 3, "languages": ["eng", "swa", "hin"], "served_bound": 99.0, "quick": True}


@pytest.fixture
def figures(tmp_path):
    path = tmp_path / "variants.json"
    path.write_text(variants(np.random.default_rng(0)).model_dump_json())
    return path


def test_outliers_are_planted_once_and_figures_answer_claims_on_training(figures, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = save_tiny("gpt2", tmp_path / "tiny")
    claims = ["outlier-fraction", "decay-prevents-outliers"]
    result = laaciq.run_lab([f"{model}+outliers", figures], claims=claims, out=tmp_path / "lab", **FEW)
    assert result.models == ["tiny+outliers", "variants.json"]
    # Three languages decide nothing, but the claim applies: there are outlier blocks.
    assert result["outlier-fraction"].decisions["tiny+outliers"].verdict == "undecided"
    assert result["outlier-fraction"].decisions["variants.json"].verdict == "not applicable"
    assert result["decay-prevents-outliers"].decisions["tiny+outliers"].verdict == "not applicable"
    assert result["decay-prevents-outliers"].decisions["variants.json"].finding is not None
    folder = tmp_path / "laaciq-runs/tiny+outliers"
    planted = load(find_model(folder), device="cpu").anatomy.linears
    assert pooled_kurtosis([linear.matrix for linear in planted if linear.block == 1]) == pytest.approx(150, rel=1e-3)
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert laaciq.run_lab([f"{model}+outliers", figures], claims=claims, out=tmp_path / "lab", **FEW) == result
    assert (folder / "model.safetensors").stat().st_mtime_ns == written


def test_planted_outliers_are_measured_in_the_languages_of_the_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = run_lab._session(
        "reference+outliers", LabOptions(models=("reference+outliers",)), Settings(device="cpu", progress=Progress())
    )
    assert session.split.test.languages == reference.languages()


def test_figures_alone_are_refused(figures):
    with pytest.raises(BadOption, match="give a model beside them"):
        laaciq.run_lab([figures], **FEW)


def test_figures_of_the_reference_models_variants_are_at_hand():
    claims = ["penalty-balances", "exposure-causes-disparity"]
    result = laaciq.run_lab(["reference", "reference-variants"], claims=claims, **FEW)
    for claim in claims:
        assert result[claim].decisions["reference"].verdict == "not applicable"
        assert "'reference-variants'" in result[claim].decisions["reference"].needed
        assert result[claim].decisions["reference-variants"].finding is not None
