"""`laaciq imatrix`: an importance matrix over all languages for llama.cpp's quantizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laaciq.cli.printing import print_lines
from laaciq.cli.verbs import Call, Out, calls_verb
from laaciq.options import ImatrixOptions

if TYPE_CHECKING:
    from laaciq.commands.imatrix import Imatrix


@calls_verb(ImatrixOptions, out=Out("Folder for the importance matrix and the other files.", required=True))
def imatrix(result: Imatrix, call: Call[ImatrixOptions]) -> None:
    """Write an importance matrix of all languages, and the types of a plan, for llama.cpp's llama-quantize."""
    heaviest = max(result.weights, key=lambda code: result.weights[code])
    alike = len(set(result.weights.values())) == 1
    how = "alike" if alike else f"by the plan's weights, most {heaviest}"
    print_lines(
        f"{len(result.weights)} languages count {how}.",
        f"Written: {', '.join(f'{result.folder}/{name}' for name in result.files)}",
        f"Next: {result.command}",
    )
