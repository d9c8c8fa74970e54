"""`laaciq mixture`: which text to calibrate on, and how much of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from laaciq.cli.fitting import Column, FittedTable
from laaciq.cli.printing import print_lines, print_table
from laaciq.cli.verbs import Call, calls_verb
from laaciq.options import MixtureOptions

if TYPE_CHECKING:
    from laaciq.studies.mixture_results import MixtureStudy, Setting


@calls_verb(MixtureOptions)
def mixture(result: MixtureStudy, call: Call[MixtureOptions]) -> None:
    """Calibrate on English alone, on all languages, on more and on less text, and measure each language.

    If it is interrupted, the same command resumes.
    """
    print_table(mixture_table(result))
    print_lines(f"Report: {call.out / 'report.html'}")


def mixture_table(result: MixtureStudy) -> RenderableType:
    """Mixes with numbers of passages, and the recommendation."""
    from laaciq.studies.recommendation import degradation, degradation_interval

    settings = result.settings
    columns = [
        Column("mix", [result.name(s.mix) for s in settings], justify="left"),
        Column("passages", [str(s.passages) for s in settings], short=("pass.", [str(s.passages) for s in settings])),
        Column("tokens", [f"{s.tokens:,}" for s in settings], importance=0),
        Column("worst", [degradation(s.worst) for s in settings]),
        Column("95 %", [degradation_interval(s.worst) for s in settings], importance=1, justify="left", style="dim"),
        Column("", [s.worst_language for s in settings], importance=4, justify="left"),
        Column("mean", [degradation(s.mean) for s in settings], importance=2),
        Column("disparity", [_disparity(s) for s in settings], importance=3),
    ]
    recommended = (result.recommendation.mix, result.recommendation.passages)
    styles = ["bold" if (s.mix, s.passages) == recommended else None for s in settings]
    grid = f"{result.bits} bits, group {result.group_size}, {'symmetric' if result.symmetric else 'affine'}"
    title = f"{result.model}, {grid}: D by calibration text ({result.texts})"
    return Group(FittedTable(columns, title=title, row_styles=styles), *_footer(result))


def _disparity(setting: Setting) -> str:
    disparity = setting.disparity
    if disparity is None:
        return "–"
    return f"{100 * disparity.plug_in.value:z.1f} %{'' if disparity.beyond_noise else ' *'}"


def _footer(result: MixtureStudy) -> list[Text]:
    from laaciq.studies.recommendation import left_out_sentence

    lines = [left_out_sentence(language) for language in result.left_out]
    if any(s.disparity is not None and not s.disparity.beyond_noise for s in result.settings):
        lines.append("* within the noise floor.")
    if result.not_served:
        lines.append(f"Not served by the original, left out of all figures: {', '.join(result.not_served)}.")
    return [Text(line, style="dim") for line in lines] + [Text(result.recommendation.sentence, style="bold")]
