"""`laaciq export`: a checkpoint in the format of another library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laaciq.cli.printing import print_lines, print_table
from laaciq.cli.verbs import Call, Out, calls_verb
from laaciq.options import ExportOptions

if TYPE_CHECKING:
    from laaciq.exporting.results import Exported


@calls_verb(ExportOptions, out=Out("Folder for the export.", required=True))
def export(result: Exported, call: Call[ExportOptions]) -> None:
    """Write a checkpoint in another library's format, with exactly the same codes."""
    from laaciq.cli.tables import folding_table
    from laaciq.exporting.runtime_rules import rules_sentence

    stored = "; ".join(f"{words}: {_counted(count, 'layer')}" for words, count in result.layouts.items())
    wider = f", {_counted(result.widened, 'layer')} in a wider layout" if result.widened else ""
    lines = [
        f"Stored with the checkpoint's own codes{wider}. {stored}.",
        f"Size: {result.bytes_before / 1e6:.1f} MB before, {result.bytes_after / 1e6:.1f} MB after.",
    ]
    if result.folded:
        first, count = result.folded[0], _counted(len(result.folded), "tensor")
        lines.append(f"Folded: {count}; {first.tensor} to {first.folded_to}, because {first.reason}.")
    lines += result.notes
    lines += [rules_sentence(runtime, rules) for runtime, rules in result.runtimes.items() if rules]
    print_table(*lines)
    if result.before is not None and result.after is not None:
        print_table(folding_table(result.before, result.after))
    print_lines(f"Written: {result.folder}")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
