"""What methods declare to read is what they read: each such option changes the plan, and no other does."""

import pytest

import laaciq
from laaciq.commands.opening import open_session
from laaciq.commands.settings import Settings
from laaciq.options import METHODS, PlanOptions, WeightOptions
from laaciq.planning.decision import calibrate
from laaciq.planning.rules import make_plans
from laaciq.planning.search import search_plan
from laaciq.profiling.weights import pooled_moments
from tests.short_texts import write_short_texts
from tests.tiny import save_tiny

FEW = ["eng", "swa", "hin"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_short_texts(tmp_path_factory.mktemp("texts"), FEW, letters=60)


@pytest.fixture(scope="module")
def options(tmp_path_factory, texts):
    model = save_tiny("llama", tmp_path_factory.mktemp("model") / "model")
    return PlanOptions.of(model=model, texts=texts, served_bound=100)


@pytest.fixture(scope="module")
def session(options):
    return open_session(options, Settings())


@pytest.fixture(scope="module")
def calibration(session, options):
    return calibrate(session, WeightOptions(method="effective"))


@pytest.fixture(scope="module")
def values(session, calibration):
    """For every option a value that is not the default, and options without which it has no effect."""
    statistics = {tensor.name: tensor for tensor in calibration.profile.tensors}
    components = {}
    for linear in session.original.anatomy.linears:
        components.setdefault((linear.block, linear.component), []).append(statistics[linear.name])
    *_, second, first = sorted(pooled_moments(members).kurtosis for members in components.values())
    # One component alone is above this κ; a block has two.
    between = (first + second) / 2
    return {
        "bits": (3, {}),
        "group_size": ("tensor", {}),
        "symmetric": (False, {}),
        "keep": (1.0, {}),
        "keep_by": ("saliency", {"keep": 1.0}),
        "protect": (("0",), {}),
        "protect_bits": (8, {"protect": ("0",)}),
        "outlier_bits": (8, {"outlier_kurtosis": -10.0}),
        "outlier_kurtosis": (-10.0, {"outlier_bits": 8}),
        "outlier_by": ("component", {"outlier_bits": 8, "outlier_kurtosis": between}),
        "attention_bits": (8, {}),
        "embedding_bits": (8, {}),
        "rank": (2, {}),
        "separate": (True, {}),
        "calibration_languages": (("eng",), {"separate": True}),
        "hold_out": (("swa",), {"keep": 1.0, "keep_by": "saliency"}),
        "tune": (1, {}),
        "table_overhead": (1.0, {}),
        "budget": (5.0, {}),
        "budget_for": ("model", {}),
        "objective": ("mean", {}),
        "language_weight": (("swa=3",), {"objective": "mean"}),
        "effort": ("full", {}),
        "runtime": ("vllm", {}),
    }


@pytest.mark.parametrize("method", [method for method in METHODS if not METHODS[method].planned])
def test_a_rule_reads_what_it_declares_and_nothing_else(session, calibration, values, method):
    assert set(values) == set(WeightOptions.model_fields) - {"method", "plan"}
    for name, (value, needed) in values.items():
        if (method, name) == ("adaptive", "tune"):
            continue  # refused, since tuning would undo what tables are fitted to
        plain, changed = (
            make_plans(session.original.anatomy, WeightOptions(method=method, **given), calibration.profile)
            for given in (needed, {**needed, name: value})
        )
        assert (plain != changed) == (name in METHODS[method].reads), name


def test_planning_reads_what_it_declares_and_nothing_else(session, calibration):
    read = set()

    class Recorded(WeightOptions):
        def __getattribute__(self, name):
            if name in WeightOptions.model_fields:
                read.add(name)
            return super().__getattribute__(name)

    search_plan(session, calibration, Recorded(method="planned"))
    assert read - {"method"} == METHODS["planned"].reads


def test_a_language_that_is_held_out_is_measured_and_calibrates_nothing(options, texts, tmp_path):
    given = {"texts": texts, "method": "gptq", "tune": 1, "hold_out": ["Swahili"], "served_bound": 100}
    result = laaciq.run(options.model, **given, passages=2, out=tmp_path / "run")
    assert result.plan.languages == ["eng", "hin"]
    assert {language.language for language in result.evaluation.languages} == set(FEW)
    # Other text of that language leaves the weights as they are.
    (texts / "swa.txt").write_text((texts / "swa.txt").read_text().replace("a", "e"))
    laaciq.quantize(options.model, **given, out=tmp_path / "other")
    weights = [sorted(folder.glob("*.safetensors")) for folder in (tmp_path / "run/checkpoint", tmp_path / "other")]
    assert weights[0]
    assert [path.read_bytes() for path in weights[0]] == [path.read_bytes() for path in weights[1]]
