"""`laaciq mixture`: which text to calibrate on, and how much of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from laaciq.cli import options as shared
from laaciq.options import BUILTIN, REFERENCE, MeasureOptions, MixtureOptions

if TYPE_CHECKING:
    from laaciq.studies import MixtureStudy
    from laaciq.studies.mixture_results import Setting

_DEFAULT: tuple[int, ...] = MixtureOptions.model_fields["passages"].default


class _Options(MeasureOptions, MixtureOptions):
    pass


@shared.options_of(_Options)
def mixture(
    model: shared.Model = REFERENCE,
    texts: shared.TextSource = BUILTIN,
    languages: shared.Languages = None,
    passages: Annotated[
        str, typer.Option(help="Passages a language that are tried, with commas between; all are tried too.")
    ] = ",".join(map(str, _DEFAULT)),
    leave_out: Annotated[
        str | None, typer.Option(help="Leave these out in turn, for example 'swa,tam'; the worst two if not given.")
    ] = None,
    test_passages: Annotated[
        int | None, typer.Option(min=2, help="Most test passages a language, to save time.")
    ] = None,
    out: shared.Out = None,
    overwrite: shared.Overwrite = False,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    **options: Any,
) -> None:
    """Calibrate on English alone, on all languages, on more and on less text, and measure each language. Run again, it resumes."""
    from laaciq.commands.mixture import mixture as study
    from laaciq.engine.progress import TerminalProgress

    target = out or Path("laaciq-runs") / f"{Path(model).name}-mixture"
    values = shared.read_values(options, languages)
    found = study(
        model,
        passages=shared.split_numbers("passages", passages),
        leave_out=None if leave_out is None else tuple(shared.split_names(leave_out) or ()),
        test_passages=test_passages,
        texts=texts,
        out=target,
        overwrite=overwrite,
        device=device,
        progress=TerminalProgress(),
        **values,
    )
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
        return
    console = Console()
    console.print(mixture_table(found))
    console.print(f"Report: {target / 'mixture.html'}", soft_wrap=True, highlight=False)


def mixture_table(found: MixtureStudy) -> RenderableType:
    """Mixes with numbers of passages, and the recommendation. Fits 80 columns."""
    grid = f"{found.bits} bits, group {found.group_size}, {'symmetric' if found.symmetric else 'affine'}"
    title = f"{found.model}, {grid}: D by calibration text ({found.texts})"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("mix", no_wrap=True)
    for heading in ("passages", "tokens", "worst"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("95 %", style="dim", no_wrap=True)
    table.add_column("", no_wrap=True)
    for heading in ("mean", "disparity"):
        table.add_column(heading, justify="right", no_wrap=True)
    for setting in found.settings:
        chosen = (setting.mix, setting.passages) == (found.recommendation.mix, found.recommendation.passages)
        table.add_row(
            *_row(found, setting), style="bold" if chosen else None, end_section=setting.passages == found.most
        )
    return Group(table, *_footer(found))


def _row(found: MixtureStudy, setting: Setting) -> list[str]:
    from laaciq.studies.recommendation import degradation, degradation_interval

    disparity = setting.disparity
    return [
        found.name(setting.mix),
        str(setting.passages),
        f"{setting.tokens:,}",
        degradation(setting.worst),
        degradation_interval(setting.worst),
        setting.worst_language,
        degradation(setting.mean),
        "–" if disparity is None else f"{100 * disparity.plug_in.value:z.1f} %{'' if disparity.beyond_noise else ' *'}",
    ]


def _footer(found: MixtureStudy) -> list[Text]:
    from laaciq.studies.recommendation import left_out_sentence

    lines = [left_out_sentence(own) for own in found.left_out]
    if any(own.disparity is not None and not own.disparity.beyond_noise for own in found.settings):
        lines.append("* within the noise floor.")
    if found.not_served:
        lines.append(f"Not served by the original, left out of all figures: {', '.join(found.not_served)}.")
    return [Text(line, style="dim") for line in lines] + [Text(found.recommendation.sentence, style="bold")]
