"""`laaciq quantize` writes checkpoints; `laaciq methods` lists the methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from laaciq.cli import options as shared
from laaciq.cli.printing import print_json, print_lines, print_table
from laaciq.cli.verbs import Call, Out, calls_verb
from laaciq.engine.escaping import command_words, shell_command
from laaciq.options import METHODS, EvaluateOptions, QuantizeOptions

if TYPE_CHECKING:
    from laaciq.commands.quantize import QuantizeResult


@calls_verb(QuantizeOptions, out=Out("Folder for the checkpoint.", required=True))
def quantize(result: QuantizeResult, call: Call[QuantizeOptions]) -> None:
    """Write a quantized checkpoint that transformers loads once laaciq is imported."""
    from laaciq.cli.tables import size_sentence

    folders = list(result.folders.values())
    following = call.options.carried_over(EvaluateOptions, checkpoint=folders[0], against=call.options.model)
    words = [*command_words(following.command), *call.settings_for(EvaluateOptions)]
    print_table(size_sentence(result.plans))
    print_lines(
        *(f"Written: {folder}" for folder in folders),
        f"Next: {shell_command(words)}",
    )


@shared.takes()
def methods(as_json: shared.AsJson = False) -> None:
    """List the methods, one line each."""
    if as_json:
        print_json({method.name: method.summary for method in METHODS.values()})
        return
    table = Table("method", "what it does", "reads text", box=None)
    for method in METHODS.values():
        table.add_row(method.name, method.summary, "yes" if method.reads_text else "no")
    print_table(table)
