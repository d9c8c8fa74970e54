from dataclasses import replace

import pytest

import laaciq
from benchmarks.methods import quantized
from benchmarks.rows import DrawRows, read_rows
from laaciq.corpus import Split
from laaciq.models import find_model, load
from laaciq.options import MeasureOptions, WeightOptions
from laaciq.planning.rules import make_plans
from laaciq.quantization import Calibration
from laaciq.quantization.model import quantize_layers
from laaciq.trials.measurement import measure
from laaciq.trials.quantized_copy import copy_of, put_layers
from laaciq.trials.session import Session
from tests.tiny import save_tiny

FEW = ["eng", "swa"]
OPTIONS = MeasureOptions(served_bound=100)


@pytest.fixture(scope="module")
def texts():
    whole = laaciq.read_split().test.select(FEW)
    short = {
        code: replace(p.at(range(4)), texts=tuple(t[:40] for t in p.texts[:4])) for code, p in whole.by_language.items()
    }
    return replace(whole, by_language=short)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load(find_model(save_tiny("llama", tmp_path_factory.mktemp("models") / "llama")), device="cpu")


def rows(model, texts, folder):
    return DrawRows(
        folder, {"benchmark": "test"}, Session.of(model, Split(texts, texts, texts), OPTIONS), {"test": texts}
    )


@pytest.mark.parametrize("separate", [False, True])
def test_a_row_holds_what_its_method_costs_every_language(model, texts, tmp_path, separate):
    """Also where every language has a checkpoint; the size counts all of them."""
    options = WeightOptions.of(method="effective", bits=3, group_size=16, separate=separate)
    drawn = rows(model, texts, tmp_path / "draw-0")
    row = drawn.row("effective", lambda key: quantized(drawn.session, "effective", options, key))
    calibration = Calibration(drawn.session.profile(texts), texts, OPTIONS)
    plans = make_plans(model.anatomy, options, calibration.profile)
    for code in FEW:
        plan = plans.plans[code if separate else ""]
        expected = copy_of(model)
        put_layers(model, expected, quantize_layers(model, plan, calibration))
        alone = measure(model, expected, texts[code], OPTIONS)
        # Only the size of batches differs.
        assert row.tests["test"].by_language[code].loss == pytest.approx(alone.loss, abs=1e-4)
    # 3 bits, and a scale of 16 bits for 16 weights.
    assert row.block_bits_per_weight == pytest.approx(4.0 * (len(FEW) if separate else 1))
    assert 0 < row.weight_error < 1


def test_a_row_that_is_there_is_not_computed_again(model, texts, tmp_path):
    options = WeightOptions.of(method="rtn", bits=4, group_size=16)
    first = rows(model, texts, tmp_path / "draw-0")
    row = first.row("rtn", lambda key: quantized(first.session, "rtn", options, key))
    first.finish()

    def refuse(key):
        raise AssertionError("computed again")

    again = rows(model, texts, tmp_path / "draw-0")
    assert again.row("rtn", refuse) == row
    assert read_rows(tmp_path / "draw-0") == {"rtn": row}


def test_other_text_is_another_row(model, texts, tmp_path):
    options = WeightOptions.of(method="rtn", bits=4, group_size=16)
    first = rows(model, texts, tmp_path / "draw-0")
    row = first.row("rtn", lambda key: quantized(first.session, "rtn", options, key))
    first.finish()
    fewer = rows(model, texts.at(range(3)), tmp_path / "draw-0")
    shorter = fewer.row("rtn", lambda key: quantized(fewer.session, "rtn", options, key))
    assert len(shorter.tests["test"].by_language["eng"].tokens) == 3 != len(row.tests["test"].by_language["eng"].tokens)
