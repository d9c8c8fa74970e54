"""Results in notebooks: the table of the command line, as HTML."""

from __future__ import annotations

from importlib import import_module


class Displayed:
    """A result that notebooks show as a table; see `laaciq.cli.notebook`."""

    def _repr_html_(self) -> str:
        # Imported by name: tables are in the top layer, and a lower layer must not import it.
        return import_module("laaciq.cli.notebook").html_of(self)
