import math
import sys

import pytest
import torch

import laaciq
from laaciq.backends.contract import Backend, BackendResult, matrices_besides
from laaciq.backends.registry import BACKENDS
from laaciq.errors import BadOption
from laaciq.studies.comparison import Comparison
from tests.tiny import save_tiny

SETTINGS = {"languages": ["eng", "swa"], "passages": 4, "served_bound": 100.0}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return save_tiny("llama", tmp_path_factory.mktemp("models") / "llama", num_hidden_layers=1)


@pytest.fixture
def coarse(monkeypatch):
    """A back end for this test: rounds to a number of steps, or fails on request; counts its runs."""
    runs = []

    def run(model, tokenizer, texts, *, bits, device, fail=None):
        runs.append(texts)
        if fail is not None:
            raise fail
        sys.stdout.write("what libraries print")
        weights = {
            f"{name}.weight": (module.weight.detach().float() * 4).round() / 4
            for name, module in model.named_modules()
            if isinstance(module, torch.nn.Linear) and name != "lm_head"
        }
        left = "model.layers.0.mlp.down_proj.weight"
        del weights[left]
        return BackendResult("quarters", weights, {n: 4.0 * w.numel() for n, w in weights.items()}, [left])

    def add(name, library="torch", reads_text=True, **more):
        def run_backend(*args, **kwargs):
            return run(*args, **kwargs, **more)

        monkeypatch.setitem(BACKENDS, name, Backend(name, "", library, "none", (4,), reads_text, run_backend))
        return runs

    return add


def test_rows_of_libraries_and_of_ours_count_alike(tiny, coarse, tmp_path, capsys):
    read = coarse("coarse")
    result = laaciq.compare(tiny, methods=["coarse", "rtn", "gptq"], out=tmp_path, **SETTINGS)
    assert capsys.readouterr().out == ""
    assert result == Comparison.model_validate_json((tmp_path / "compare.json").read_text())
    assert not result.failed
    theirs, ours = result["coarse"], result["rtn"]
    linears = {"attention": 2 * 32 * 32 + 2 * 32 * 16, "up and gate": 2 * 32 * 64, "down": 64 * 32}
    total = sum(linears.values())
    assert theirs.made.block_bits_per_weight == (4 * (total - linears["down"]) + 16 * linears["down"]) / total
    assert theirs.made.left_alone == ["model.layers.0.mlp.down_proj.weight"]
    assert theirs.made.notes == ["coarse left 1 of 7 linear layers unquantized: model.layers.0.mlp.down_proj.weight …"]
    # Groups of 64 are the whole row here: a scale per row.
    assert ours.made.block_bits_per_weight == 4 + 16 * (32 + 16 + 16 + 32 + 64 + 64 + 32) / total
    assert theirs.evaluation.languages[0].original == ours.evaluation.languages[0].original
    # A random model may even gain; but it is not what it was.
    assert theirs.worst.kl_per_token > ours.worst.kl_per_token > 0
    # English and Swahili, calibration and validation text: 40 passages each.
    assert len(read) == 1 and len(read[0]) == len(set(read[0])) == 80
    assert "coarse" in (tmp_path / "report.html").read_text()


def test_methods_that_fail_are_rows_that_say_why(tiny, coarse, tmp_path):
    coarse("raising", fail=ZeroDivisionError("no groups\nat all"))
    coarse("leaving", fail=SystemExit("gone"))
    coarse("absent", library="no_such_library")
    result = laaciq.compare(tiny, methods=["raising", "leaving", "absent", "mse"], out=tmp_path, **SETTINGS)
    assert [row.method for row in result.measured] == ["mse"]
    assert {row.method: row.reason for row in result.failed} == {
        "raising": "ZeroDivisionError: no groups",
        "leaving": "SystemExit: gone",
        "absent": "no_such_library is not installed: run pip install '.[none]' in your clone of laaciq",
    }
    other = laaciq.compare(tiny, methods=["absent", "mse", "adaptive"], bits=1, out=tmp_path, **SETTINGS)
    assert other["absent"].reason == "absent supports 4 bits, not 1"
    assert "1 bits are not supported" in other["mse"].reason
    with pytest.raises(BadOption, match="unknown method"):
        laaciq.compare(tiny, methods=["nothing-like-it"], out=tmp_path, **SETTINGS)


def test_weights_that_are_not_finite_are_no_result(tiny, monkeypatch, tmp_path):
    def run(model, tokenizer, texts, *, bits, device):
        name = "model.layers.0.mlp.down_proj.weight"
        weights = {name: torch.full_like(model.get_parameter(name), math.nan)}
        return BackendResult("", weights, {name: 0.0}, matrices_besides(model, weights))

    monkeypatch.setitem(BACKENDS, "broken", Backend("broken", "", "torch", "none", (4,), False, run))
    result = laaciq.compare(tiny, methods=["broken"], out=tmp_path, **SETTINGS)
    assert "NaN or infinite weights in model.layers.0.mlp.down_proj.weight" in result["broken"].reason


def test_another_environment_adds_its_rows_to_the_same_table(tiny, coarse, tmp_path):
    settings = {"methods": ["coarse", "other"], "out": tmp_path, **SETTINGS}
    read = coarse("coarse")
    coarse("other", library="no_such_library", reads_text=False)
    first = laaciq.compare(tiny, **settings)
    assert (first["coarse"].reason, first["other"].missing) == (None, True)
    # There the first library is missing and the second one is there.
    coarse("coarse", library="no_such_library")
    coarse("other", reads_text=False)
    second = laaciq.compare(tiny, **settings)
    assert not second.failed
    assert second["coarse"] == first["coarse"]
    assert len(read) == 2
    # Asked for one method, the table still has both; other calibration text changes only what reads it.
    assert laaciq.compare(tiny, **settings | {"methods": ["other"]}).rows == [second["other"], second["coarse"]]
    english = laaciq.compare(tiny, calibration="eng", **settings)
    assert (english["other"], english["coarse"].missing) == (second["other"], True)
    assert len(read) == 2


def test_a_failure_is_tried_again_and_says_more_than_an_absence(tiny, coarse, tmp_path):
    settings = {"methods": ["coarse"], "out": tmp_path, **SETTINGS}
    coarse("coarse", fail=RuntimeError("too old"))
    assert laaciq.compare(tiny, **settings)["coarse"].reason == "RuntimeError: too old"
    coarse("coarse", library="no_such_library")
    assert laaciq.compare(tiny, **settings)["coarse"].reason == "RuntimeError: too old"
    coarse("coarse")
    assert laaciq.compare(tiny, **settings)["coarse"].reason is None


def test_texts_of_the_users_own_are_what_methods_read(tiny, coarse, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    passages = [f"Wimbo wa kwanza, mstari wa {number}." for number in range(9)]
    (tmp_path / "texts/swa.txt").write_text("\n".join(passages))
    read = coarse("coarse")
    result = laaciq.compare(tiny, methods=["coarse", "gptq"], calibration="texts", out="run", **SETTINGS)
    assert not result.failed
    assert sorted(read[0]) == sorted(passages) and read[0] != passages
    assert "calibrated on texts" in (tmp_path / "run/report.html").read_text()


def test_a_method_with_tables_by_language_is_measured_with_them(tiny, tmp_path):
    result = laaciq.compare(tiny, methods=["adaptive", "effective"], bits=3, out=tmp_path, **SETTINGS)
    assert not result.failed
    adaptive, plain = result["adaptive"], result["effective"]
    assert adaptive.made.block_bits_per_weight > plain.made.block_bits_per_weight
    assert adaptive.evaluation.languages[0].loss != plain.evaluation.languages[0].loss


def test_without_any_library_the_package_and_ours_work(tiny, monkeypatch, tmp_path):
    for backend in BACKENDS.values():
        for name in [name for name in sys.modules if name.partition(".")[0] == backend.library]:
            monkeypatch.delitem(sys.modules, name)
        # What `import` and `find_spec` take for an absent module.
        monkeypatch.setitem(sys.modules, backend.library, None)
    result = laaciq.compare(tiny, methods=[*BACKENDS, "rtn"], out=tmp_path, **SETTINGS)
    assert [row.method for row in result.measured] == ["rtn"]
    at_four = [row for row in result.failed if 4 in BACKENDS[row.method].bits]
    assert at_four and all(row.missing for row in at_four)


def test_calibration_text_may_be_cut_short(tiny, coarse, tmp_path):
    read = coarse("coarse")
    laaciq.compare(tiny, methods=["coarse"], out=tmp_path, calibration_passages=2, **SETTINGS)
    laaciq.compare(tiny, methods=["coarse"], out=tmp_path, calibration_passages=3, **SETTINGS)
    # So many to calibrate and so many to validate, in two languages; libraries read both.
    assert [len(texts) for texts in read] == [8, 12]
