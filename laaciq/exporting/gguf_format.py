"""GGUF among the formats: what its blocks cannot carry, and what the user must know of a file."""

from __future__ import annotations

from pathlib import Path

from laaciq.exporting.contents import Coded, read_contents
from laaciq.exporting.gguf import from_codes, write_gguf
from laaciq.exporting.results import Misfit, Written
from laaciq.exporting.source import Source


class GgufFormat:
    name = "gguf"

    def misfits(self, source: Source) -> list[Misfit]:
        """Some blocks hold a matrix or not by its very codes: all are read."""
        found = []
        for name, stored in read_contents(source.folder):
            if not isinstance(stored, Coded):
                continue
            blocks = from_codes(stored, None)
            if isinstance(blocks, str):
                found.append(Misfit(tensor=name, reason=blocks, folded_to="16 bits"))
            elif tables := stored.plan.tables:
                reason = f"it has {tables} tables of scales for languages"
                found.append(Misfit(tensor=name, reason=reason, folded_to="shared scales"))
        return found

    def write(self, source: Source, misfits: list[Misfit], folder: Path) -> Written:
        written = write_gguf(source.folder, folder)
        quantized = {plan.name for plan in source.plan.tensors if plan.quantized}
        carried = [own for own in written.tensors if own.name in quantized and own.folded is None]
        notes = []
        if rounded := [own.error for own in carried if not own.exact]:
            notes.append(
                f"Offsets of {len(rounded)} affine layers are rounded to float16: weights move by at most "
                f"{max(rounded):.1e} of the largest."
            )
        if not written.for_transformers:
            notes.append("Its rotary embeddings are scaled, which transformers does not read from GGUF: use llama.cpp.")
        return Written(layouts=written.types, widened=sum(own.widened for own in carried), vllm=None, notes=notes)
