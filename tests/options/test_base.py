"""The base class of options: names, ranges, the equivalent command line, and default folders."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from laaciq.errors import BadOption
from laaciq.options import VERBS, CompareOptions, PlanOptions, QuantizeOptions, RunOptions, WeightOptions
from tests.options.values import required, value


def changed(verb):
    """Options of a command that differ from the defaults in one place, by that place."""
    kind = VERBS[verb]
    return {name: kind(**{**required(verb), name: value(verb, name)}) for name in kind.model_fields}


def test_importing_options_imports_nothing_heavy():
    """Help and completion on TAB wait for this import."""
    script = "import sys, laaciq.options; print({name.partition('.')[0] for name in sys.modules})"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert not {"torch", "transformers", "numpy", "scipy", "matplotlib"} & set(eval(shown))


@pytest.mark.parametrize("verb", VERBS)
def test_values_are_not_the_defaults(verb):
    for name, options in changed(verb).items():
        assert getattr(options, name) != VERBS[verb].model_fields[name].default, name


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_is_described(verb):
    assert all(field.description for field in VERBS[verb].model_fields.values())


@pytest.mark.parametrize("verb", VERBS)
def test_default_folders_differ_wherever_options_that_decide_the_result_differ(verb):
    kind, needed = VERBS[verb], required(verb)
    others = {
        name: options.default_folder
        for name, options in changed(verb).items()
        if name not in kind.undecisive | needed.keys()
    }
    # Models and checkpoints of one name lie in different places.
    moved = [
        kind(**{**needed, name: f"elsewhere/{needed[name]}"}).default_folder for name in needed if name == "checkpoint"
    ]
    folders = [kind(**needed).default_folder, *others.values(), *moved]
    assert len(set(folders)) == len(folders)


def test_default_folders_are_the_same_in_every_process():
    assert str(RunOptions().default_folder) == "laaciq-runs/reference-planned-4bit-g64"
    assert str(RunOptions(budget=4.25).default_folder) == "laaciq-runs/reference-planned-4.25bit"
    few = RunOptions(model="org/model", method="gptq", symmetric=False, languages=("eng", "swa"))
    assert str(few.default_folder) == "laaciq-runs/model-gptq-4bit-g64-affine-e7078167"
    # Methods add rows to one comparison.
    assert CompareOptions(methods=("gptq",)).default_folder == CompareOptions().default_folder


def test_the_command_names_what_differs_from_the_defaults():
    assert RunOptions().command == "laaciq run"
    options = RunOptions(
        model="a b",
        bits=3,
        symmetric=False,
        languages=("eng", "swa"),
        calibration_languages=("eng",),
        protect=("0,11", "swa=3"),
        baseline=False,
        generate=True,
        group_size="channel",
    )
    assert options.command == (
        "laaciq run 'a b' --languages eng,swa --bits 3 --group-size channel --affine --protect 0,11 --protect swa=3 "
        "--calibration-languages eng --no-baseline --generate"
    )
    assert VERBS["mixture"](symmetric=True, calibration_passages=(2, 4)).command == (
        "laaciq mixture --symmetric --calibration-passages 2,4"
    )
    assert VERBS["check"](run="folder", max_degradation=0.05).command == "laaciq check folder --max-D 0.05"
    assert VERBS["survey"](models=("a", "b")).command == "laaciq survey a b"


def test_a_following_command_gets_what_was_given_and_has_an_effect_there():
    """A plan is carried out on the texts that it was made for. What its file decides is not repeated, nor refused."""
    planned = PlanOptions.of(texts="mine", seed=3, budget=4.5, hold_out=("swa",), served_bound=9.0)
    following = planned.carried_over(QuantizeOptions, plan="plan.json")
    assert following.command == "laaciq quantize --texts mine --seed 3 --plan plan.json"
    following.refuse_unread()


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(BadOption, match="unknown option 'bit': did you mean 'bits'"):
        RunOptions.of(bit=3)


def test_none_stands_for_an_option_that_was_not_given():
    assert RunOptions.of(method="gptq", budget=None, languages=None).model_fields_set == {"method"}


@pytest.mark.parametrize(
    ("verb", "options", "sentence"),
    [
        ("run", {"bits": 9}, "9 bits are not supported: give one of 2, 3, 4, 5, 6, 7, 8"),
        ("run", {"group_size": 0}, "group size 0 is out of range"),
        ("run", {"method": "gtpq"}, "unknown method 'gtpq': did you mean 'gptq'?"),
        ("run", {"method": "rtn", "keep": 11.0}, "11 % of the weights cannot stay in 16 bits: give 0 to 10"),
        ("run", {"budget": 0.0}, "--budget cannot be 0.0: it should be greater than 0"),
        ("run", {"budget": -1.0}, "--budget cannot be -1.0: it should be greater than 0"),
        ("run", {"budget": 1e300}, "--budget cannot be 1e+300: it should be less than or equal to 16"),
        ("run", {"budget": float("inf")}, "--budget cannot be inf: it should be a finite number"),
        ("run", {"method": "adaptive", "table_overhead": -0.5}, "--table-overhead cannot be -0.5"),
        ("run", {"method": "adaptive", "table_overhead": 1e300}, "--table-overhead cannot be 1e+300"),
        ("run", {"method": "adaptive", "table_overhead": float("inf")}, "--table-overhead cannot be inf"),
        ("run", {"languages": ()}, "--languages names no language"),
        ("run", {"languages": ("eng", " ")}, "--languages names no language"),
        ("run", {"calibration_languages": ()}, "--calibration-languages names no language"),
        ("run", {"hold_out": ()}, "--hold-out names no language"),
        ("run", {"languages": "eng"}, "--languages cannot be 'eng'"),
        ("run", {"objective": "best"}, "--objective cannot be 'best'"),
        ("run", {"objective": "mean", "language_weight": ("swa",)}, "'swa' is not a weight: write for example 'swa=3'"),
        ("run", {"objective": "mean", "language_weight": ("swa=nan",)}, "'swa=nan' is not a weight"),
        ("run", {"objective": "mean", "language_weight": ("swa=inf",)}, "'swa=inf' is not a weight"),
        ("run", {"objective": "mean", "language_weight": ("swa=1e308",)}, "'swa=1e308' is not a weight"),
        ("run", {"objective": "mean", "language_weight": ("swa=-1",)}, "'swa=-1' is not a weight"),
        ("run", {"window": 4}, "--window cannot be 4"),
        ("run", {"seed": -1}, "--seed cannot be -1"),
        ("run", {"seed": 2**32}, "--seed cannot be 4294967296"),
        ("run", {"model": ""}, "--model is empty"),
        ("run", {"texts": " "}, "--texts is empty"),
        ("run", {"texts": "a\0b"}, "--texts 'a\\x00b' is not a name in UTF-8"),
        ("run", {"model": "\udcff"}, "--model '\\udcff' is not a name in UTF-8"),
        ("run", {"passages": 0}, "--passages cannot be 0"),
        ("sweep", {"bits": ()}, "--bits is empty"),
        ("sweep", {"bits": (4, 9)}, "9 bits are not supported"),
        ("sweep", {"tolerance": -0.1}, "--tolerance cannot be -0.1"),
        ("gateway", {"protect": 0}, "--protect cannot be 0"),
        ("mixture", {"calibration_passages": (2, 0)}, "--calibration-passages 0 is too few"),
        ("mixture", {"calibration_passages": ()}, "--calibration-passages"),
        ("mixture", {"leave_out": ()}, "--leave-out names no language"),
        ("compare", {"calibration": ""}, "--calibration cannot be ''"),
        ("check", {"max_degradation": -0.1}, "--max-D cannot be -0.1"),
        ("check", {"max_degradation": float("nan")}, "--max-D cannot be nan"),
        ("check", {"max_disparity": float("inf")}, "--max-disparity cannot be inf"),
        ("compare", {"methods": ()}, "--methods cannot be ()"),
        ("export", {"format": None}, "--format is required"),
    ],
)
def test_what_is_out_of_range_is_refused_at_the_option(verb, options, sentence):
    with pytest.raises(BadOption) as error:
        VERBS[verb].of(**{**required(verb), **options})
    assert sentence in str(error.value)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_no_option_takes_a_number_that_is_not_finite(number):
    for verb, kind in VERBS.items():
        for name in kind.model_fields:
            if isinstance(value(verb, name), float):
                with pytest.raises((BadOption, ValidationError)):
                    kind(**{**required(verb), name: number})


def test_a_group_is_a_part_of_the_options():
    options = RunOptions.of(method="gptq", bits=3, passages=2)
    assert options.quantizing() == WeightOptions(method="gptq", bits=3)
    read = {"window": None, "chat": False, "seed": 0}
    assert options.measuring().model_dump() == read | {"served_bound": 4.0, "dtype": "auto"}
    assert VERBS["plan"](budget=4.5).quantizing() == WeightOptions(method="planned", budget=4.5)


@pytest.mark.parametrize(("options", "bits"), [({"bits": 3}, 3), ({"budget": 4.25}, 4)])
def test_nominal_bits(options, bits):
    assert WeightOptions(method="planned", **options).nominal_bits == bits
