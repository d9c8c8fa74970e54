"""Every option of every command, under every method, is read or refused; and what a method declares to read it reads."""

import shlex
import sys
from importlib import import_module

import pytest
import typer

import laaciq.cli
from laaciq.errors import BadOption
from laaciq.options import METHODS, VERBS, WeightOptions
from laaciq.options.methods import readers
from tests.options.values import required, value

# What an option depends on.
NEEDS = {
    "keep_by": {"keep": 1.0},
    "protect_bits": {"protect": ("0",)},
    "outlier_kurtosis": {"outlier_bits": 8},
    "outlier_by": {"outlier_bits": 8},
    "language_weight": {"objective": "mean"},
    "prompts": {"generate": True},
    "rates": {"do": "tokens"},
    "to_bits": {"do": "bits"},
}
# Options that say which text is read and how; without text they have an effect on a measurement alone.
CALIBRATING = {"calibration_languages", "hold_out", "draws"}
READING = {"texts", "languages", "window", "chat", "seed", "served_bound", "dtype"}
METHOD_VERBS = ("run", "quantize")


class Reached(BaseException):
    """The options were accepted, and the work would begin."""


@pytest.fixture(scope="module")
def group():
    return typer.main.get_command(laaciq.cli.app)


@pytest.fixture
def command_line(group, monkeypatch, capsys):
    """`laaciq …` in this process, up to where the work would begin: the options that got there, or the sentence of exit status 2."""
    # Built once: it takes longer than all that is tested here.
    monkeypatch.setattr(laaciq.cli, "app", group)

    def invoke(verb, **options):
        kind, given = VERBS[verb], {}

        def reach(*arguments, **keywords):
            given.update(zip(kind.positional, arguments, strict=False))
            given.update({name: other for name, other in keywords.items() if name in kind.model_fields})
            raise Reached

        monkeypatch.setattr(import_module(f"laaciq.commands.{verb}"), verb, reach)
        monkeypatch.setattr(laaciq.cli.bench, "bench_verb", reach)
        words = shlex.split(kind(**{**required(verb), **options}).command)
        out = [] if verb in ("check", "bench", "screen", "survey", "tasks", "ratings") else ["--out", "somewhere"]
        out = ["somewhere"] if verb == "tasks" else out
        monkeypatch.setattr(sys, "argv", [*words, *out])
        try:
            laaciq.cli.main()
        except Reached:
            return kind.of(**given), None
        except SystemExit as end:
            assert end.code == 2, words
            return None, capsys.readouterr().err
        raise AssertionError(f"{words} ended without a word")

    return invoke


def test_methods_declare_options_that_exist_and_no_option_is_read_by_none():
    fields = set(WeightOptions.model_fields) - {"method", "plan"}
    assert set().union(*(method.reads for method in METHODS.values())) == fields


@pytest.mark.parametrize("verb", METHOD_VERBS)
@pytest.mark.parametrize("method", METHODS)
def test_every_option_is_read_by_the_method_or_refused(command_line, verb, method):
    for name in VERBS[verb].model_fields:
        if name in ("model", "method", "plan"):
            continue
        by_method, reads_text = METHODS[method].reads, METHODS[method].reads_text
        read = not readers(name) or name in by_method
        if name in CALIBRATING or (verb == "quantize" and name in READING):
            read = reads_text
        if name == "baseline":
            read = METHODS[method].planned
        more = NEEDS.get(name, {}) if read else {}
        given, sentence = command_line(verb, method=method, **more, **{name: value(verb, name)})
        assert (given is not None) == read, (name, sentence)
        if read:
            assert getattr(given, name) == value(verb, name)
            assert given.model_fields_set - {"method"} == {name, *more}
        else:
            assert "has no effect" in sentence
            named = readers(name) or [other for other, m in METHODS.items() if m.reads_text or m.planned]
            assert any(other in sentence for other in named), sentence


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in METHOD_VERBS])
def test_every_option_of_other_commands_is_read_or_refused(command_line, verb):
    kind = VERBS[verb]
    fixed = {*required(verb), "fold"} if verb == "export" else set(required(verb))
    beside = {"fold": True} if verb == "export" else {}
    for name in kind.model_fields:
        if name in fixed:
            continue
        more = {
            other: v
            for other, v in (NEEDS.get(name, {}) | beside).items()
            if other != name and other in kind.model_fields
        }
        given, sentence = command_line(verb, **more, **{name: value(verb, name)})
        assert given is not None, (name, sentence)
        assert getattr(given, name) == value(verb, name)


@pytest.mark.parametrize("verb", ["sweep", "gateway"])
@pytest.mark.parametrize("method", METHODS)
def test_studies_that_quantize_again_and_again_take_methods_that_read_no_text(command_line, verb, method):
    given, sentence = command_line(verb, method=method) if not METHODS[method].reads_text else refused(verb, method)
    assert (given is None) == METHODS[method].reads_text
    assert given is not None or "give one of rtn, mse, aciq" in sentence


def refused(verb, method):
    with pytest.raises(BadOption) as error:
        VERBS[verb].of(method=method)
    return None, str(error.value)


@pytest.mark.parametrize(
    ("verb", "options", "sentence"),
    [
        ("run", {"method": "rtn", "keep_by": "saliency"}, "--keep-by has no effect without --keep above 0"),
        ("run", {"method": "rtn", "protect_bits": 8}, "--protect-bits has no effect without --protect"),
        ("run", {"method": "rtn", "outlier_kurtosis": 9.0}, "--outlier-kurtosis has no effect without --outlier-bits"),
        ("run", {"method": "rtn", "outlier_by": "component"}, "--outlier-by has no effect without --outlier-bits"),
        ("run", {"language_weight": ("swa=3",)}, "--language-weight has no effect without --objective mean"),
        ("run", {"budget": 4.5, "bits": 3}, "--bits has no effect beside --budget"),
        ("run", {"prompts": 5}, "--prompts has no effect without --generate"),
        ("plan", {"budget": 4.5, "group_size": 32}, "--group-size has no effect beside --budget"),
        ("run", {"plan": "plan.json", "bits": 3}, "--bits has no effect beside --plan"),
        ("run", {"plan": "plan.json", "hold_out": ("swa",)}, "--hold-out has no effect beside --plan"),
        ("run", {"plan": "plan.json", "baseline": False}, "--no-baseline has no effect here"),
        ("quantize", {"plan": "plan.json", "served_bound": 5.0}, "--served-bound has no effect beside --plan"),
        ("run", {"symmetric": False}, "--affine has no effect with method 'planned', only with rtn, mse"),
        ("run", {"method": "gptq", "separate": True, "hold_out": ("swa",)}, "cannot be combined with --separate"),
        ("export", {"passages": 3}, "--passages has no effect without --fold"),
        ("export", {"against": "original"}, "--against has no effect without --fold"),
        ("screen", {"source": "profile.json", "texts": "folder"}, "--texts has no effect on a finished profile"),
    ],
)
def test_options_that_depend_on_others_are_refused_without_them(command_line, verb, options, sentence):
    assert sentence in command_line(verb, **options)[1]


@pytest.mark.parametrize(
    ("options", "accepted"),
    [
        ({"tune": 1, "hold_out": ("swa",)}, True),
        ({"keep": 1.0, "keep_by": "saliency", "texts": "folder"}, True),
        ({"separate": True, "calibration_languages": ("eng",)}, True),
        ({"separate": True, "served_bound": 5.0}, True),
        # κ of weights needs no text.
        ({"outlier_bits": 8, "texts": "folder"}, False),
    ],
)
def test_rules_that_read_text_make_options_of_text_count(command_line, options, accepted):
    assert (command_line("quantize", method="rtn", **options)[0] is not None) == accepted


@pytest.mark.parametrize(
    ("methods", "options", "sentence"),
    [
        (
            ("rtn", "nf4"),
            {"calibration": "eng"},
            "--calibration has no effect, because none of these methods reads text",
        ),
        (("planned@4.5",), {"bits": 3}, "--bits has no effect, because each method here names its own size"),
    ],
)
def test_compare_refuses_what_none_of_its_methods_reads(methods, options, sentence, tmp_path):
    """Before a model or a text is looked for: neither is there."""
    with pytest.raises(BadOption, match=sentence):
        laaciq.compare("/nowhere", texts="/nowhere", methods=methods, out=tmp_path / "out", **options)


def test_a_study_takes_no_options_of_other_commands():
    with pytest.raises(BadOption, match="unknown option 'keep'"):
        laaciq.sensitivity("/nowhere", keep=1.0)
