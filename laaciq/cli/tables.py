"""Tables of the command line that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from laaciq.cli.fitting import Column, FittedTable, language_column
from laaciq.evaluation import Evaluation, LanguageResult
from laaciq.evaluation.verdict import percent, rough_intervals
from laaciq.report.wording import baseline_sentence

if TYPE_CHECKING:
    from laaciq.evaluation.continuations import GenerationResult
    from laaciq.quantization.plan import PlanSet

_BAR_WIDTH = 12
# Of continuations: headings in a terminal, and their importance where it is narrow, by place in the report's table.
_GENERATION_COLUMNS: dict[int, tuple[str, int | None]] = {
    1: ("prompts", 0),
    3: ("in language", None),
    4: ("difference", 3),
    6: ("garbled", None),
    7: ("difference", 4),
    9: ("repeated", 2),
    10: ("difference", 1),
}


def evaluation_table(evaluation: Evaluation, baseline: Evaluation | None = None) -> RenderableType:
    """Results by language, worst first; languages that the original does not serve come last.

    With a `baseline`, its D replaces the agreement. In a narrow terminal, D and its interval are dropped last.
    """
    results = evaluation.worst_first
    longest = max((r.degradation.value for r in evaluation.judged if r.degradation), default=0.0)
    columns = [
        language_column(
            [Text(f"{r.language} {r.name}", style=_label_style(r)) for r in results],
            [Text(r.language, style=_label_style(r)) for r in results],
        ),
        Column("bits/byte", [_bits_per_byte(r) for r in results], importance=3),
        Column("D", [_degradation(r) for r in results]),
        Column(
            "95 %",
            [_state(r) or _interval(r) for r in results],
            importance=5,
            justify="left",
            style="dim",
            short=("", [_state(r) for r in results]),
        ),
        Column("", [_bar(r, longest) for r in results], importance=0, justify="left"),
        Column("KL", [f"{r.kl_per_token:.3f}" if r.served else "" for r in results], importance=1),
    ]
    if baseline is None:
        agreement = [f"{100 * r.top_agreement:.0f} %" if r.served else "" for r in results]
        columns.append(Column("agree", agreement, importance=2))
    else:
        columns.append(Column("baseline D", [_baseline(r, baseline) for r in results], importance=4))
    table = FittedTable(columns, title=f"{evaluation.original} → {evaluation.quantized}")
    beside = [] if baseline is None else [Text(baseline_sentence(evaluation, baseline), style="bold")]
    return Group(table, *_footer(evaluation), *beside)


def _label_style(result: LanguageResult) -> str:
    return "dim" if not result.served else "bold red" if result.collapsed else ""


def _bits_per_byte(result: LanguageResult) -> Text:
    return Text(f"{result.original.bits_per_byte:.2f}", style="" if result.served else "dim")


def _degradation(result: LanguageResult) -> str:
    return "" if not result.served or result.degradation is None else f"{100 * result.degradation.value:.1f} %"


def _state(result: LanguageResult) -> Text:
    """Why a language has no D; empty if it has one."""
    if not result.served:
        return Text("not served")
    return Text("collapsed", style="bold red") if result.degradation is None else Text("")


def _interval(result: LanguageResult) -> str:
    loss = result.degradation
    return "" if loss is None else f"{100 * loss.low:.1f} to {100 * loss.high:.1f}"


def _baseline(result: LanguageResult, baseline: Evaluation) -> str:
    if not result.served:
        return ""
    loss = baseline[result.language].degradation
    return "collapsed" if loss is None else f"{100 * loss.value:.1f} %"


def _bar(result: LanguageResult, longest: float) -> Text:
    if not result.served or result.degradation is None:
        return Text("")
    share = max(0.0, result.degradation.value) / longest if longest > 0 else 0.0
    colour = "red" if share > 0.75 else "yellow" if share > 0.5 else "green"
    return Text("█" * max(1, round(share * _BAR_WIDTH)), style=colour)


def _footer(evaluation: Evaluation) -> list[Text]:
    summary, served = evaluation.summary, [r for r in evaluation.languages if r.served]
    lines = [
        f"Mean {percent(summary.mean)}, worst quarter {percent(summary.worst_quarter)}, hurt beyond noise: "
        f"{sum(r.hurt for r in served)} of {len(served)} languages, "
        f"{sum(r.hurt_corrected for r in served)} after correction for their number."
    ]
    if rough := rough_intervals(evaluation.fewest_documents):
        lines.append(rough)
    if not summary.rankings_agree:
        worst = ", ".join(f"{name.replace('_', ' ')} {code}" for name, code in summary.worst_by.items())
        lines.append(f"The measures disagree on the worst language: {worst}.")
    if summary.not_served:
        lines.append(
            f"Not served (original above {evaluation.served_bound} bits per byte), left out of all figures: "
            f"{', '.join(summary.not_served)}."
        )
    return [Text(line, style="dim") for line in lines] + [Text(evaluation.verdict, style="bold")]


def folding_table(before: Evaluation, after: Evaluation) -> Table:
    """D of each language before and after folding."""
    table = Table(title="D before and after folding", title_justify="left", box=None, pad_edge=False)
    table.add_column("language")
    for heading in ("before", "after"):
        table.add_column(heading, justify="right")
    for result in before.worst_first:
        if result.served:
            table.add_row(
                f"{result.language} {result.name}",
                *(_loss(evaluation[result.language]) for evaluation in (before, after)),
            )
    return table


def _loss(result: LanguageResult) -> str:
    return "collapsed" if result.degradation is None else f"{100 * result.degradation.value:.2f} %"


def generation_table(results: list[GenerationResult]) -> RenderableType:
    """Continuations of the same prompts before and after: in the language, garbled, repetition."""
    from laaciq.report.generation_section import cells, sentences
    from laaciq.report.paired_cells import FOOT

    rows = [cells(result) for result in results]
    columns = [language_column([row[0] for row in rows], [result.language for result in results])]
    for place, (heading, importance) in _GENERATION_COLUMNS.items():
        columns.append(Column(heading, [row[place] for row in rows], importance))
    table = FittedTable(columns, title="Greedy continuations of the same prompts, original → quantized")
    return Group(table, *(Text(line, style="bold") for line in sentences(results)), Text(FOOT, style="dim"))


def size_sentence(plans: PlanSet) -> str:
    size = plans.first.size
    sentence = (
        f"Size: {size.block_bits_per_weight:.2f} bits per weight in the blocks, {size.model_bytes / 1e6:.1f} MB in all "
        f"(original in 16 bits {size.original_model_bytes / 1e6:.1f} MB, {size.compression:.1f} times smaller)"
    )
    if len(plans.plans) > 1:
        sentence += f"; {len(plans.plans)} checkpoints, {plans.total_bytes / 1e6:.1f} MB together"
    return f"{sentence}."
