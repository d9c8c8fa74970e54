"""Results in a notebook: the tables of the command line, as HTML."""

from __future__ import annotations

from importlib import import_module
from io import StringIO
from typing import Any

from rich.console import RenderableType

from laaciq.engine.terminal import Terminal

# A notebook's cell is wider than a terminal.
_WIDTH = 110
_PAGE = '<pre style="white-space: pre; overflow-x: auto; line-height: 1.25; font-family: monospace">{code}</pre>'
# The function that makes a result's table, by the result's class. Imported when first shown.
TABLES = {
    "Comparison": "laaciq.cli.compare:compare_table",
    "Evaluation": "laaciq.cli.tables:evaluation_table",
    "Gateway": "laaciq.cli.gateway:gateway_table",
    "Intervention": "laaciq.cli.intervene:intervention_table",
    "LabResult": "laaciq.cli.lab:lab_table",
    "MixtureStudy": "laaciq.cli.mixture:mixture_table",
    "Profile": "laaciq.cli.profile:profile_tables",
    "RunResult": "laaciq.cli.run:run_table",
    "Sensitivity": "laaciq.cli.sensitivity:sensitivity_table",
    "Sweep": "laaciq.cli.sweep:sweep_table",
}


def html_of(result: Any) -> str:
    module, _, function = TABLES[type(result).__name__].partition(":")
    table: RenderableType = getattr(import_module(module), function)(result)
    # Printed to nowhere: the record is what is exported.
    console = Terminal(record=True, width=_WIDTH, file=StringIO(), force_jupyter=False)
    console.print(table)
    return console.export_html(code_format=_PAGE, inline_styles=True)
