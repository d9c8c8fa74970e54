"""`laaciq profile`, `laaciq screen`, `laaciq survey`: what is known before quantization."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from laaciq.cli import options as shared
from laaciq.cli.printing import print_json, print_lines, print_table
from laaciq.cli.verbs import Call, calls_verb
from laaciq.engine.escaping import shell_command
from laaciq.options import ProfileOptions, ScreenOptions, SurveyOptions

if TYPE_CHECKING:
    from laaciq.commands.survey import SurveyRow
    from laaciq.planning.screening import Screening
    from laaciq.profiling.results import Profile


@calls_verb(ProfileOptions)
def profile(result: Profile, call: Call[ProfileOptions]) -> None:
    """Measure what is in the weights and how each language uses them."""
    print_table(profile_tables(result))
    print_lines(f"Report: {call.out / 'report.html'}", f"Next: {shell_command(['laaciq', 'screen', str(call.out)])}")


@shared.takes(ScreenOptions)
def screen(as_json: shared.AsJson = False, device: shared.Device = "auto", **given: Any) -> None:
    """Predict whether languages will lose differently, and what to do about it. A measurement ('laaciq run') decides."""
    ScreenOptions.of(**given)

    from laaciq.commands.screen import screen as screen_verb
    from laaciq.engine.progress import TerminalProgress

    screening = screen_verb(**given, device=device, progress=TerminalProgress())
    if as_json:
        print_json(screening)
    else:
        _print_screening(screening)


@shared.takes(SurveyOptions)
def survey(as_json: shared.AsJson = False, device: shared.Device = "auto", **given: Any) -> None:
    """Compare models: kurtosis, outlier fractions, risk and architecture."""
    SurveyOptions.of(**given)

    from laaciq.commands.survey import survey as survey_verb
    from laaciq.engine.progress import TerminalProgress

    rows = survey_verb(**given, device=device, progress=TerminalProgress())
    if as_json:
        print_json([row.model_dump() for row in rows])
    else:
        print_table(_survey_table(rows))


def profile_tables(result: Profile) -> RenderableType:
    """Tables by block and by language; and of the experts that languages use, if there are any."""
    tables = [_block_table(result), _language_table(result)]
    return Group(*tables, *([_routing_table(result)] if result.languages[0].routing else []))


def _routing_table(result: Profile) -> Table:
    from laaciq.profiling.routing import language_routings

    table = Table(title="Experts by language", title_justify="left", box=None, pad_edge=False)
    for heading in ("lang", "unlike the mean", "without a token", "most different"):
        table.add_column(heading, justify="left" if heading == "lang" else "right", no_wrap=True)
    for routing in language_routings(result):
        shares = (f"{100 * routing.distance:.1f} %", f"{100 * routing.idle:.1f} %")
        table.add_row(routing.language, *shares, routing.most_used)
    return table


def _block_table(result: Profile) -> Table:
    table = Table(title=f"{result.model}: kurtosis by block", title_justify="left", box=None, pad_edge=False)
    for heading in ("block", "σ", "κ pooled", "κ mean", "κ max", ""):
        table.add_column(heading, justify="right")
    for block in result.blocks:
        numbers = (block.kurtosis, block.mean_tensor_kurtosis, block.max_tensor_kurtosis)
        row = [f"{block.block}", f"{block.sigma:.4f}", *(f"{number:.2f}" for number in numbers)]
        table.add_row(*row, "outlier" if block.outlier else "", style="bold red" if block.outlier else None)
    return table


def _language_table(result: Profile) -> Table:
    table = Table(title="By language", title_justify="left", box=None, pad_edge=False)
    for heading in ("lang", "bits/B", "R̂", "κ_eff", "tokens/B", "× eng", "fallback", "sinks", "R", "seen"):
        table.add_column(heading, justify="left" if heading == "lang" else "right", no_wrap=True)
    tokens = {t.language: t for t in result.tokenization}
    for language in result.languages:
        text = tokens[language.language]
        table.add_row(
            language.language,
            "–" if language.bits_per_byte is None else f"{language.bits_per_byte:.2f}",
            f"{100 * language.outlier_fraction:.2f} %",
            f"{language.effective_kurtosis:.3f}",
            f"{text.tokens_per_byte:.3f}",
            "–" if text.against_english is None else f"{text.against_english:.2f}",
            f"{100 * text.fallback_share:.1f} %",
            f"{100 * language.sink_share:.1f} %",
            "–" if language.spectral_redundancy is None else f"{language.spectral_redundancy.redundancy:.2f}",
            "–" if language.exposure_tokens is None else f"{language.exposure_tokens / 1e6:.1f} M",
        )
    return table


def _print_screening(result: Screening) -> None:
    answers = {True: "yes", False: "no", None: "unknown"}
    for condition in result.conditions:
        name, answer = (condition.name, "bold"), (answers[condition.answer], "bold")
        print_table(Text.assemble(name, f" {condition.question} ", answer, f": {condition.measured}"))
    print_table(*(f"{'☑' if box.done else '☐'} {box.question} {box.answer}" for box in result.checklist))
    colour = {"HIGH": "red", "MODERATE": "yellow", "LOW": "green"}[result.risk]
    risk = (result.risk, f"bold {colour}")
    print_table(Text.assemble("Risk of disparity: ", risk, f". {result.prediction}"), f"Strategy: {result.strategy}")


def _survey_table(rows: list[SurveyRow]) -> Table:
    """One row per fact, one column per model."""
    table = Table(title="Survey", title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for row in rows:
        table.add_column(Path(row.model).name, justify="right", overflow="fold")
    table.add_row("max κ", *(f"{row.max_kurtosis:.2f}" for row in rows))
    table.add_row("outlier blocks", *(", ".join(map(str, row.outlier_blocks)) or "none" for row in rows))
    table.add_row("R̂", *(f"{row.outlier_fraction_low:.3f} to {row.outlier_fraction_high:.3f}" for row in rows))
    table.add_row("risk", *(row.risk for row in rows))
    for name in type(rows[0].architecture).model_fields:
        values = (getattr(row.architecture, name) for row in rows)
        table.add_row(name.replace("_", " "), *(_fact(value) for value in values))
    return table


def _fact(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
