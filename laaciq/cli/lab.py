"""`laaciq lab list` and `laaciq lab run`: the claims of the theory, and their verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from laaciq.cli import options as shared
from laaciq.cli.fitting import Column, FittedTable
from laaciq.cli.printing import print_json, print_lines, print_table
from laaciq.cli.verbs import Call, calls_verb
from laaciq.options import LabOptions

if TYPE_CHECKING:
    from laaciq.lab.verdicts import Decision, LabResult

app = typer.Typer(help="Test every claim of the theory on your models.", no_args_is_help=True)
_COLOURS = {"supported": "green", "refuted": "red", "undecided": "yellow", "not applicable": "dim"}


@shared.takes()
def list_claims(as_json: shared.AsJson = False) -> None:
    """List all claims: their words, where the theory states them, what they need, and the rule for their verdict."""
    from laaciq.lab.claims import CLAIMS
    from laaciq.lab.unverifiable import UNVERIFIABLE

    shown = ("name", "words", "place", "needs", "rule")
    if as_json:
        claims = [{name: getattr(claim, name) for name in shown} for claim in CLAIMS.values()]
        print_json({"claims": claims, "unverifiable": [figure.model_dump() for figure in UNVERIFIABLE]})
        return
    table = Table("claim", "in the theory's words", "supported if", box=None, pad_edge=False)
    for claim in CLAIMS.values():
        table.add_row(Text(claim.name, style="bold"), f"{claim.words} ({claim.place})", claim.rule)
    others = Table("figures that no data reach", "what would be needed", box=None, pad_edge=False)
    for figure in UNVERIFIABLE:
        others.add_row(f"{figure.figure} ({figure.place})", figure.needed)
    print_table(table, others)


@calls_verb(LabOptions)
def run_lab(result: LabResult, call: Call[LabOptions]) -> None:
    """Test the claims of the theory on one or more models: supported, refuted, undecided or not applicable.

    If it is interrupted, the same command resumes.
    """
    print_table(lab_table(result))
    print_lines(f"Report: {call.out / 'report.html'}")


def lab_table(result: LabResult) -> RenderableType:
    """A row per claim and model. In a narrow terminal, claim and verdict are dropped last."""
    from laaciq.report.lab_report import decisions, effect_words, interval_words, p_words

    cells = [(row.name, model, decision) for row in result.rows for model, decision in decisions(row)]
    found = [decision for _, _, decision in cells]
    columns = [Column("claim", [name for name, _, _ in cells], justify="left")]
    if len(result.models) > 1:
        columns.append(Column("model", [model for _, model, _ in cells], justify="left"))
    columns += [
        Column("verdict", [_verdict(decision) for decision in found], justify="left"),
        Column(
            "effect", [effect_words(decision) for decision in found], importance=3, justify="left",
            short=("effect", [interval_words(decision) for decision in found]),
        ),
        Column("corrected p", [p_words(decision) for decision in found], importance=2),
        Column("power", ["" if d.finding is None else f"{d.finding.power:.2f}" for d in found], importance=1),
    ]  # fmt: skip
    counts = ", ".join(f"{found_with(result, verdict)} {verdict}" for verdict in _COLOURS)
    lines = [Text(f"{counts}. p is corrected for the number of findings.", style="bold")]
    return Group(FittedTable(columns, title=f"Claims of the theory ({result.texts})"), *lines)


def found_with(result: LabResult, verdict: str) -> int:
    return sum(decision.verdict == verdict for row in result.rows for decision in row.decisions.values())


def _verdict(decision: Decision) -> Text:
    return Text(decision.verdict, style=_COLOURS[decision.verdict])


app.command("list")(list_claims)
app.command("run")(run_lab)
