"""`laaciq profile`, `laaciq screen`, `laaciq survey`: what can be known before quantizing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from laaciq.cli import options as shared
from laaciq.options import BUILTIN, OUTLIER_KURTOSIS, REFERENCE, MeasureOptions

if TYPE_CHECKING:
    from laaciq.commands.survey import SurveyRow
    from laaciq.planning.screening import Screening
    from laaciq.profiling.results import Profile

DEFAULT_BITS = 4
Bits = Annotated[int, typer.Option(help="The bits that are considered.")]
Kurtosis = Annotated[float, typer.Option(help="κ above which a block is an outlier; the seeds also use 100.")]


@shared.options_of(MeasureOptions)
def profile(
    model: shared.Model = REFERENCE,
    texts: shared.TextSource = BUILTIN,
    languages: shared.Languages = None,
    out: shared.Out = None,
    overwrite: shared.Overwrite = False,
    exposure: Annotated[Path | None, typer.Option(help="JSON: tokens seen in training by language.")] = None,
    predictive: Annotated[
        bool, typer.Option("--predictive", help="Also predictive redundancy: two more passes.")
    ] = False,
    outlier_kurtosis: Kurtosis = OUTLIER_KURTOSIS,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    **options: Any,
) -> None:
    """Measure what is in the weights and how each language uses them."""
    from laaciq.commands.profile import profile as make_profile
    from laaciq.engine.progress import TerminalProgress
    from laaciq.planning.screening import ScreeningThresholds

    folder = out or Path("laaciq-runs") / f"{Path(model).name}-profile"
    found = make_profile(
        model,
        texts=texts,
        out=folder,
        overwrite=overwrite,
        device=device,
        exposure=exposure,
        predictive=predictive,
        thresholds=ScreeningThresholds.of(outlier_kurtosis=outlier_kurtosis),
        progress=TerminalProgress(),
        **shared.read_values(options, languages),
    )
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
        return
    console = Console()
    console.print(_block_table(found), _language_table(found))
    console.print(f"Report: {folder / 'profile.html'}", soft_wrap=True, highlight=False)
    console.print(f"Next: laaciq screen {folder} --bits 4", soft_wrap=True, highlight=False)


def screen(
    source: Annotated[str, typer.Argument(help="A model, or a profile made by 'laaciq profile'.")] = REFERENCE,
    bits: Bits = DEFAULT_BITS,
    texts: shared.TextSource = BUILTIN,
    languages: shared.Languages = None,
    outlier_kurtosis: Kurtosis = OUTLIER_KURTOSIS,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
) -> None:
    """Predict whether languages will pay differently, and say what to do. A measurement ('laaciq run') decides."""
    from laaciq.commands.screen import screen as find_screening
    from laaciq.engine.progress import TerminalProgress
    from laaciq.planning.screening import ScreeningThresholds

    found = find_screening(
        source,
        bits=bits,
        thresholds=ScreeningThresholds.of(outlier_kurtosis=outlier_kurtosis),
        texts=texts,
        languages=shared.split_names(languages),
        device=device,
        progress=TerminalProgress(),
    )
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
    else:
        _print_screening(found)


def survey(
    models: Annotated[list[str], typer.Argument(help="Models, or profiles made by 'laaciq profile'.")],
    bits: Bits = DEFAULT_BITS,
    texts: shared.TextSource = BUILTIN,
    languages: shared.Languages = None,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
) -> None:
    """Set models side by side: kurtosis, outlier fractions, risk and architecture."""
    from laaciq.commands.survey import survey as make_survey
    from laaciq.engine.progress import TerminalProgress

    rows = make_survey(
        models,
        bits=bits,
        texts=texts,
        languages=shared.split_names(languages),
        device=device,
        progress=TerminalProgress(),
    )
    if as_json:
        typer.echo(json.dumps([row.model_dump() for row in rows], indent=1))
    else:
        Console().print(_survey_table(rows))


def _block_table(found: Profile) -> Table:
    table = Table(title=f"{found.model}: kurtosis by block", title_justify="left", box=None, pad_edge=False)
    for heading in ("block", "σ", "κ pooled", "κ mean", "κ max", ""):
        table.add_column(heading, justify="right")
    for block in found.blocks:
        numbers = (block.kurtosis, block.mean_tensor_kurtosis, block.max_tensor_kurtosis)
        row = [f"{block.block}", f"{block.sigma:.4f}", *(f"{number:.2f}" for number in numbers)]
        table.add_row(*row, "outlier" if block.outlier else "", style="bold red" if block.outlier else None)
    return table


def _language_table(found: Profile) -> Table:
    table = Table(title="By language", title_justify="left", box=None, pad_edge=False)
    for heading in ("lang", "bits/B", "R̂", "κ_eff", "tokens/B", "× eng", "fallback", "sinks", "R", "seen"):
        table.add_column(heading, justify="left" if heading == "lang" else "right", no_wrap=True)
    tokens = {t.language: t for t in found.tokenization}
    for result in found.languages:
        own = tokens[result.language]
        table.add_row(
            result.language,
            "–" if result.bits_per_byte is None else f"{result.bits_per_byte:.2f}",
            f"{100 * result.outlier_fraction:.2f} %",
            f"{result.effective_kurtosis:.3f}",
            f"{own.tokens_per_byte:.3f}",
            "–" if own.against_english is None else f"{own.against_english:.2f}",
            f"{100 * own.fallback_share:.1f} %",
            f"{100 * result.sink_share:.1f} %",
            "–" if result.spectral_redundancy is None else f"{result.spectral_redundancy.redundancy:.2f}",
            "–" if result.exposure_tokens is None else f"{result.exposure_tokens / 1e6:.1f} M",
        )
    return table


def _print_screening(found: Screening) -> None:
    console = Console(highlight=False)
    answers = {True: "yes", False: "no", None: "unknown"}
    for condition in found.conditions:
        console.print(
            f"[bold]{condition.name}[/] {condition.question} [bold]{answers[condition.answer]}[/]: {condition.measured}"
        )
    for box in found.checklist:
        console.print(f"{'☑' if box.done else '☐'} {box.question} {box.answer}")
    colour = {"HIGH": "red", "MODERATE": "yellow", "LOW": "green"}[found.risk]
    console.print(f"Risk of disparity: [bold {colour}]{found.risk}[/]. {found.prediction}")
    console.print(f"Strategy: {found.strategy}")


def _survey_table(rows: list[SurveyRow]) -> Table:
    """Facts down, models across: few models, many facts."""
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
