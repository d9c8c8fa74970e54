"""Help that one can read: commands in groups, options in panels, each with what it does and its default."""

import re

import pytest
import typer
from typer.testing import CliRunner

from laaciq.cli import app
from laaciq.cli.options import PANEL_OF

_ALL = typer.main.get_command(app).commands
# Commands of a group by both words.
COMMANDS = {name: command for name, command in _ALL.items() if not hasattr(command, "commands")} | {
    f"{name} {word}": command
    for name, group in _ALL.items()
    for word, command in getattr(group, "commands", {}).items()
}
# All its arguments are those of lm-eval.
OURS = [name for name in COMMANDS if name != "lm-eval"]
PANELS = ["Model and texts", "Method", "Budget", "Calibration", "Measuring", "Output"]


def shown(*words):
    return CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "100"}).stdout


def panels(text):
    return re.findall(r"^╭─ (.*?) ─+╮$", text, flags=re.MULTILINE)


def options_of(name):
    return [p for p in COMMANDS[name].params if p.param_type_name == "option" and p.name != "help"]


def test_commands_stand_in_groups():
    assert panels(shown()) == ["Options", "Main", "Inspect", "Study", "Interoperate"]


def test_options_of_a_run_stand_in_panels():
    assert panels(shown("run")) == ["Arguments", "Options", *PANELS]


@pytest.mark.parametrize("name", OURS)
def test_every_option_has_a_panel_and_says_what_it_does(name):
    for option in options_of(name):
        assert option.rich_help_panel == PANEL_OF[option.name], option.name
        assert option.help.endswith((".", "]")), option.name


# Without these there is simply none: no plan file, no limit, no name.
NONE_BY_DEFAULT = {"plan", "config", "against", "exposure", "max_degradation", "max_disparity", "base_model", "name"}


@pytest.mark.parametrize("name", OURS)
def test_every_option_says_its_default(name):
    """Where typer does not show it, because it is computed or stands for all, the help says what it is."""
    for option in options_of(name):
        if option.default is None and not option.required and option.name not in NONE_BY_DEFAULT:
            assert "Default:" in option.help, f"{name} --{option.name}: {option.help}"


def test_options_that_measuring_commands_share_mean_the_same():
    measuring = [
        "run",
        "evaluate",
        "compare",
        "sensitivity",
        "sweep",
        "gateway",
        "mixture",
        "intervene",
        "profile",
        "lab run",
    ]
    for name in ("out", "as_json", "device", "overwrite", "config"):
        helps = {option.help for command in measuring for option in options_of(command) if option.name == name}
        assert len(helps) == 1, name
    for command in measuring:
        assert {"passages", "out", "as_json", "device", "config"} <= {option.name for option in options_of(command)}
        passages = next(option for option in options_of(command) if option.name == "passages")
        assert "passages per language" in passages.help
