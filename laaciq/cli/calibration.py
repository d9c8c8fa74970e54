"""`laaciq calibration`: which text to calibrate on, and how much of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from laaciq.cli import options as shared
from laaciq.errors import BadOption
from laaciq.options import BUILTIN, REFERENCE, CalibrationOptions, GridOptions, MeasureOptions

if TYPE_CHECKING:
    from laaciq.ablation import CalibrationStudy
    from laaciq.ablation.calibration_results import Setting

_DEFAULT: tuple[int, ...] = CalibrationOptions.model_fields["passages"].default


class _Options(MeasureOptions, CalibrationOptions):
    pass


@shared.options_of(_Options)
def calibration(
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
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    **options: Any,
) -> None:
    """Calibrate on English alone, on all languages, on more and on less text, and measure each language. Run again, it resumes."""
    from laaciq.ablation import calibration_study
    from laaciq.corpus import read_split
    from laaciq.engine.estimate import estimate, require_memory
    from laaciq.engine.files import write_text
    from laaciq.engine.progress import Bars
    from laaciq.engine.store import RunFolder
    from laaciq.models import find_model, load
    from laaciq.models.loading import pick_device
    from laaciq.report.calibration_report import calibration_html

    values = shared.read_values(options, languages)
    measuring = MeasureOptions.of(**{name: values[name] for name in MeasureOptions.model_fields})
    asked = CalibrationOptions.of(
        passages=split_numbers(passages),
        leave_out=None if leave_out is None else tuple(shared.split_names(leave_out) or ()),
        **{name: values[name] for name in (*GridOptions.model_fields, "only", "rounds")},
    )
    place, folder = pick_device(device), find_model(model)
    split = read_split(texts, seed=measuring.seed).select(values["languages"])
    if test_passages is not None:
        split = replace(split, test=split.test.spread(test_passages))
    require_memory(estimate(folder, split.test, device=place), place)
    target = out or Path("laaciq-runs") / f"{Path(model).name}-calibration"
    described = {"model": model, "texts": texts, **measuring.model_dump(), **asked.model_dump()}
    store = RunFolder(target, description={"calibration": described})
    found = calibration_study(
        load(folder, device=device), split, measuring, store=store, progress=Bars(), **asked.model_dump()
    )
    write_text(target / "calibration.html", calibration_html(found))
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
        return
    console = Console()
    console.print(calibration_table(found))
    console.print(f"Report: {target / 'calibration.html'}", soft_wrap=True, highlight=False)


def split_numbers(text: str) -> tuple[int, ...]:
    """`"1, 5"` → `(1, 5)`."""
    try:
        return tuple(int(own) for own in text.split(",") if own.strip())
    except ValueError:
        raise BadOption(f"passages {text!r} are no numbers: give for example 1,2,5,10") from None


def calibration_table(found: CalibrationStudy) -> RenderableType:
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


def _row(found: CalibrationStudy, setting: Setting) -> list[str]:
    from laaciq.ablation.recommendation import degradation, degradation_interval

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


def _footer(found: CalibrationStudy) -> list[Text]:
    from laaciq.ablation.recommendation import left_out_sentence

    lines = [left_out_sentence(own) for own in found.left_out]
    if any(own.disparity is not None and not own.disparity.beyond_noise for own in found.settings):
        lines.append("* within the noise floor.")
    if found.not_served:
        lines.append(f"Not served by the original, left out of all figures: {', '.join(found.not_served)}.")
    return [Text(line, style="dim") for line in lines] + [Text(found.recommendation.sentence, style="bold")]
