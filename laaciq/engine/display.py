"""Results as notebooks show them: the table of the command line, as HTML."""

from __future__ import annotations

from importlib import import_module


class Displayed:
    """A result with a table in `laaciq.cli.notebook`."""

    def _repr_html_(self) -> str:
        # Imported by name: tables belong to the last layer, results to earlier ones, and imports only point the other way.
        return import_module("laaciq.cli.notebook").html_of(self)
