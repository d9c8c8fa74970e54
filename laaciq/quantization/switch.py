"""Selecting the scales of a language at run time: `with model.language("swa"): model.generate(...)`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from laaciq.corpus import language
from laaciq.errors import UnknownLanguage
from laaciq.models import LanguageModel
from laaciq.quantization.layers import QuantizedLinear
from laaciq.quantization.plan import Plan


@contextmanager
def for_language(model: LanguageModel, code: str) -> Iterator[None]:
    """Within the block, a checkpoint with language tables uses the language's table, if there is one. Other models do not change."""
    switch = getattr(model.module, "language", None)
    if not isinstance(switch, LanguageSwitch):
        yield
        return
    with switch.using(switch.plan.table_of(code)):
        yield


class LanguageSwitch:
    """Selects the table of every quantized layer of a model. Without tables in the plan, every language uses the shared scales."""

    def __init__(self, module: nn.Module, plan: Plan) -> None:
        self.plan = plan
        self.table: int | None = None
        self._layers = [layer for layer in module.modules() if isinstance(layer, QuantizedLinear)]

    @contextmanager
    def __call__(self, name: str | None) -> Iterator[None]:
        """Context manager: the model uses the scales of the language's cluster; None selects the shared ones."""
        with self.using(None if name is None else self.table_of(name)):
            yield

    def table_of(self, name: str) -> int | None:
        """Table of a language that the checkpoint has scales for; otherwise an error names those it has."""
        code = language(name).code
        table = self.plan.table_of(code)
        if table is None and self.plan.tables:
            known = ", ".join(code for members in self.plan.tables for code in members)
            raise UnknownLanguage(f"this checkpoint has no table for {code}: it has {known}; None gives the shared one")
        return table

    @contextmanager
    def using(self, table: int | None) -> Iterator[None]:
        before = self.table
        try:
            self._set(table)
            yield
        finally:
            self._set(before)

    # Weights that were dequantized in inference mode can only be changed in inference mode.
    @torch.inference_mode()
    def _set(self, table: int | None) -> None:
        self.table = table
        # Every layer, because an interrupted switch may have changed only some of them; a layer that is there already does nothing.
        for layer in self._layers:
            layer.use(table)
