"""The next step after a run: the command that helps most, given the result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from laaciq.engine.escaping import command_words, shell_command
from laaciq.evaluation.results import Evaluation, LanguageResult
from laaciq.evaluation.verdict import percent
from laaciq.options import FULL_BITS, Options, RunOptions, SensitivityOptions

# D above which a language counts as broken: its perplexity has grown by half.
BROKEN = 0.5
# Bits per weight above which more bits no longer help: something else is wrong.
AMPLE_BITS = 7.0
# Limits proposed to `laaciq check` are rounded up to whole percents.
_STEP = 0.01
_DEFAULT_METHOD: str = RunOptions.model_fields["method"].default


def next_steps(
    evaluation: Evaluation,
    options: RunOptions,
    *,
    bits_per_weight: float,
    folder: Path,
    settings: Sequence[str] = (),
) -> list[str]:
    """The last lines of a run: languages that are not served, problems, and a command after 'Next:'.

    If a language collapsed or D exceeds 50 %, the command is a run with the default method if another was used, else with one more bit per
    weight, else the study that shows which blocks cause the loss. It repeats the other options of the run that have an effect on it.
    Otherwise it is the check that compares later runs with this one. `bits_per_weight` is the size in the blocks; `settings` are the words of
    `--device` and the other settings of the run.
    """
    lines = _not_served(evaluation)
    served = [result for result in evaluation.worst_first if result.served]
    if broken := [r for r in served if r.degradation is None or r.degradation.value > BROKEN]:
        lines += _repair(broken, options, bits_per_weight, settings)
    elif served:
        lines.append(f"Next: {_check(evaluation, served[0], folder)}")
    return lines


def _not_served(evaluation: Evaluation) -> list[str]:
    codes = evaluation.summary.not_served
    if not codes:
        return []
    names = ", ".join(evaluation[code].name for code in codes)
    are, their, them = ("is", "its", "it") if len(codes) == 1 else ("are", "their", "them")
    return [
        f"{names} {are} not served: the original needs more than {evaluation.served_bound:g} bits per byte of {their} text. "
        f"Use a model that was trained on {them}."
    ]


def _repair(
    broken: list[LanguageResult], options: RunOptions, bits_per_weight: float, settings: Sequence[str]
) -> list[str]:
    worst = broken[0]
    loss = "collapsed" if worst.degradation is None else f"loses {percent(worst.degradation.value)}"
    others = f" ({len(broken)} languages lose over {100 * BROKEN:g} %)" if len(broken) > 1 else ""
    if options.plan is None and options.method != _DEFAULT_METHOD:
        remedy = f"The default method, '{_DEFAULT_METHOD}', plans for the worst-off language."
        following: Options = options.carried_over(RunOptions, without={"method"})
    elif bits_per_weight <= AMPLE_BITS:
        remedy = f"{bits_per_weight:.2f} bits per weight are too few; try one more."
        budget = min(FULL_BITS, round((options.budget or bits_per_weight) + 1, 2))
        following = options.carried_over(RunOptions, without={"plan"}, budget=budget)
    else:
        remedy = (
            f"More than {bits_per_weight:.2f} bits per weight will hardly help; find the blocks that cause the loss."
        )
        following = options.carried_over(SensitivityOptions)
    command = shell_command([*command_words(following.command), *settings])
    return [f"{worst.name} {loss}{others}. {remedy}", f"Next: {command}"]


def _check(evaluation: Evaluation, worst: LanguageResult, folder: Path) -> str:
    words = ["laaciq", "check", str(folder), "--max-D", _limit(worst.degradation.value if worst.degradation else 0.0)]
    if evaluation.disparity is not None:
        words += ["--max-disparity", _limit(evaluation.disparity.plug_in.value)]
    return shell_command(words)


def _limit(measured: float) -> str:
    """The measured value, rounded up, at least one step: a limit of zero would fail by noise."""
    # Differences below a millionth of a step are rounding errors.
    return f"{max(1, math.ceil(measured / _STEP - 1e-6)) * _STEP:.2f}"
