"""Only what was given reaches Python, whether it was typed or stands in a recipe file."""

import pytest
import typer
import yaml
from typer.testing import CliRunner

from laaciq.cli import options as shared
from laaciq.cli.recipe import defaults_of
from laaciq.engine.recipe import read_recipe, recipe_of
from laaciq.errors import BadOption
from laaciq.options import VERBS, RunOptions, SurveyOptions, SweepOptions


def given(kind, *words):
    """What a command of these options receives for what was typed."""
    received = {}
    app = typer.Typer()

    @app.command()
    @shared.takes(kind)
    def command(as_json: shared.AsJson = False, **given):
        received.update(given, as_json=as_json)

    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    del received["as_json"]
    return received


@pytest.fixture
def recipe(tmp_path):
    def write(text):
        (tmp_path / "recipe.yaml").write_text(text)
        return tmp_path / "recipe.yaml"

    return write


def test_nothing_typed_is_nothing_given():
    assert given(RunOptions) == {}
    assert RunOptions.of(**given(RunOptions)).model_fields_set == set()


def test_a_default_that_was_typed_is_given():
    assert given(RunOptions, "--bits", 4, "--symmetric") == {"bits": 4, "symmetric": True}


def test_values_are_what_python_takes():
    typed = ["model", "--languages", "eng, swa", "--protect", "0,11", "--protect", "swa=3", "--affine", "--no-baseline"]
    typed += ["--group-size", "channel", "--keep", "0.5", "--effort", "full", "--protect-bits", "8"]
    received = given(RunOptions, *typed)
    assert received == {
        "model": "model",
        "languages": ("eng", "swa"),
        "protect": ("0,11", "swa=3"),
        "symmetric": False,
        "baseline": False,
        "group_size": "channel",
        "keep": 0.5,
        "effort": "full",
        "protect_bits": 8,
    }
    assert given(SweepOptions, "--bits", "3,4") == {"bits": (3, 4)}
    assert given(SurveyOptions, "one", "two") == {"models": ("one", "two")}
    with pytest.raises(BadOption, match="'few' is not a list of numbers"):
        given(SweepOptions, "--bits", "few")


def test_a_recipe_gives_options_and_what_is_typed_wins(recipe):
    path = recipe(
        "model: org/model\nbits: 3\ngroup-size: 32\nlanguages: [eng, swa]\naffine: true\nprotect: ['0,11']\nbudget: null\n"
    )
    read = given(RunOptions, "--config", path, "--bits", 2)
    assert read == {
        "model": "org/model",
        "bits": 2,
        "group_size": "32",
        "languages": ("eng", "swa"),
        "symmetric": False,
        "protect": ("0,11",),
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("bitz: 3", "unknown option 'bitz' in the recipe: did you mean 'bits'"),
        ("chat: maybe", "option 'chat' in the recipe cannot be 'maybe': give true or false"),
        ("bits: {a: 1}", "option 'bits' in the recipe cannot be {'a': 1}"),
        ("[1, 2]", "does not map names to values"),
        ("a: [", "is not valid YAML"),
        ("config: other.yaml", "unknown option 'config'"),
    ],
)
def test_a_wrong_recipe_is_refused(recipe, text, sentence):
    with pytest.raises(BadOption, match=None) as error:
        given(RunOptions, "--config", recipe(text))
    assert sentence in str(error.value)


def test_a_recipe_that_is_missing_is_refused(tmp_path):
    with pytest.raises(BadOption, match="is missing"):
        read_recipe(tmp_path / "nowhere.yaml")


def test_python_objects_are_not_made(recipe):
    with pytest.raises(BadOption, match="not valid YAML"):
        read_recipe(recipe("bits: !!python/object/apply:os.getcwd []"))


def test_the_recipe_of_a_run_gives_the_same_options_again(tmp_path):
    options = RunOptions.of(
        model="org/model", languages=["eng", "swa"], method="rtn", bits=3, protect=("0,11", "swa=3"), symmetric=False
    )
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe_of(options))
    assert path.read_text().startswith("# Read by: laaciq run --config recipe.yaml\n")
    assert set(yaml.safe_load(path.read_text())) == options.model_fields_set
    again = RunOptions.of(**given(RunOptions, "--config", path))
    assert again == options
    assert again.model_fields_set == options.model_fields_set


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_of_every_verb_can_stand_in_a_recipe(verb):
    from laaciq.cli import app

    command = typer.main.get_command(app)
    for word in VERBS[verb].typed_verb().split():
        command = command.commands[word]
    parameters = command.params
    for name in VERBS[verb].model_fields:
        (key,) = defaults_of({name: True if _is_flag(parameters, name) else 1}, parameters)
        assert key == name


def _is_flag(parameters, name):
    return next(getattr(p, "is_flag", False) for p in parameters if p.name == name)
