"""The last lines of a run propose what helps."""

import shlex
from pathlib import Path

import pytest

from laaciq.options import RunOptions
from laaciq.report.next_step import next_steps
from tests.cli.results import evaluation

FINE = {"eng": 0.012, "swa": 0.051, "tam": 0.03}
BROKEN = FINE | {"tam": 5.57}
COLLAPSED = FINE | {"tam": 20.0}


def steps(degradation, *, bits_per_weight=4.25, not_served=(), settings=(), **options):
    result, chosen = evaluation(degradation, not_served=not_served), RunOptions.of(**options)
    return next_steps(result, chosen, bits_per_weight=bits_per_weight, folder=Path("a run"), settings=settings)


def command(lines):
    (line,) = [line for line in lines if line.startswith("Next: ")]
    return shlex.split(line.removeprefix("Next: "))


def test_a_good_run_is_held_to_what_it_measured_rounded_up():
    assert command(steps(FINE)) == ["laaciq", "check", "a run", "--max-D", "0.06", "--max-disparity", "0.04"]


def test_limits_are_never_zero_and_a_whole_percent_stays():
    assert command(steps({"eng": -0.01, "swa": 0.0}))[-3:] == ["0.01", "--max-disparity", "0.01"]
    assert command(steps({"eng": 0.02, "swa": 0.05}))[-3:] == ["0.05", "--max-disparity", "0.03"]


def test_one_language_has_no_disparity_to_check():
    assert command(steps({"swa": 0.1})) == ["laaciq", "check", "a run", "--max-D", "0.10"]


@pytest.mark.parametrize(("degradation", "words"), [(BROKEN, "Tamil loses 557.0 %"), (COLLAPSED, "Tamil collapsed")])
def test_a_broken_language_under_another_method_asks_for_the_default_method(degradation, words):
    lines = steps(degradation, model="org/model", method="rtn", bits=3, languages=("eng", "swa", "tam"), keep=1.0)
    assert lines[0].startswith(f"{words}. The default method, 'planned',")
    assert command(lines) == ["laaciq", "run", "org/model", "--languages", "eng,swa,tam", "--bits", "3"]
    RunOptions.of(model="org/model", languages=("eng", "swa", "tam"), bits=3)  # the proposal is accepted


def test_a_broken_language_under_the_default_method_asks_for_one_more_bit_per_weight():
    lines = steps(BROKEN, bits_per_weight=2.256, bits=2)
    assert "2.26 bits per weight are too few" in lines[0]
    assert command(lines) == ["laaciq", "run", "--budget", "3.26"]


def test_a_proposed_run_repeats_every_option_that_has_an_effect_on_it():
    repeated = {"texts": "folder", "generate": True, "prompts": 8, "draws": 2, "allow_left_alone": True, "tune": 1}
    words = "--texts folder --allow-left-alone --tune 1 --draws 2 --generate --prompts 8"
    planned = repeated | {"runtime": "vllm", "baseline": False}
    # What only the other method reads is left out, and so is a plan file.
    other = steps(BROKEN, method="rtn", bits=3, keep=1.0, keep_by="saliency", **repeated)
    assert sorted(command(other)) == sorted(f"laaciq run --bits 3 {words}".split())
    more_bits = steps(BROKEN, bits_per_weight=2.2, budget=2.25, settings=("--device", "cpu"), **planned)
    expected = f"laaciq run --budget 3.25 --no-baseline --runtime vllm {words} --device cpu"
    assert sorted(command(more_bits)) == sorted(expected.split())
    assert command(steps(BROKEN, plan="plan.json", seed=2)) == ["laaciq", "run", "--seed", "2", "--budget", "5.25"]


def test_where_bits_are_ample_the_blocks_are_to_blame():
    assert command(steps(BROKEN, bits_per_weight=8.25, model="m")) == ["laaciq", "sensitivity", "m"]
    lines = steps(BROKEN, bits_per_weight=8.25, texts="folder", bits=8, generate=True, settings=("--workers", "2"))
    assert command(lines) == ["laaciq", "sensitivity", "--texts", "folder", "--bits", "8", "--workers", "2"]


def test_all_broken_languages_are_counted():
    assert "(2 languages lose over 50 %)" in steps(BROKEN | {"swa": 0.6}, method="rtn")[0]


def test_languages_that_are_not_served_are_named_first():
    first, last = steps(FINE, not_served=("amh", "mya"))
    assert first.startswith(
        "Amharic, Burmese are not served: the original needs more than 4 bits per byte of their text."
    )
    assert last.startswith("Next: laaciq check")
    assert steps({}, not_served=("amh",)) == [
        "Amharic is not served: the original needs more than 4 bits per byte of its text. Use a model that was trained on it."
    ]
