"""GGUF as an export format: what its blocks cannot hold, and notes for the user."""

from __future__ import annotations

from pathlib import Path

from laaciq.exporting.contents import Coded, read_contents
from laaciq.exporting.gguf import from_codes, write_gguf
from laaciq.exporting.gguf_experts import UNLIKE, expert_count, joined, stack_experts
from laaciq.exporting.results import Misfit, Rule, Written
from laaciq.exporting.source import CheckpointSource
from laaciq.models import find_model
from laaciq.models.no_remote_code import read_config


class GgufFormat:
    name = "gguf"

    def misfits(self, source: CheckpointSource) -> list[Misfit]:
        """The tensors that blocks cannot hold. That depends on the codes, so all are read."""
        misfits = []
        experts = expert_count(read_config(find_model(source.folder)))
        for _, parts in stack_experts(read_contents(source.folder), experts):
            coded = [part for part in parts.values() if isinstance(part, Coded)]
            if coded:
                whole = joined(list(parts.values()))
                blocks = from_codes(whole, None) if isinstance(whole, Coded) else UNLIKE
                misfits += [Misfit.of(part.plan, blocks if isinstance(blocks, str) else None) for part in coded]
        return [misfit for misfit in misfits if misfit is not None]

    def rules(self, source: CheckpointSource, misfits: list[Misfit]) -> dict[str, list[Rule]]:
        """llama.cpp loads every type of block that is written, also mixed."""
        return {}

    def write(self, source: CheckpointSource, misfits: list[Misfit], folder: Path) -> Written:
        written = write_gguf(source.folder, folder)
        quantized = {plan.name for plan in source.plan.tensors if plan.quantized}
        carried = [tensor for tensor in written.tensors if tensor.name in quantized and tensor.folded is None]
        notes = []
        if rounded := [tensor.error for tensor in carried if not tensor.exact]:
            notes.append(
                f"Offsets of {len(rounded)} affine layers are rounded to float16: weights move by at most "
                f"{max(rounded):.1e} of the largest."
            )
        if not written.for_transformers:
            notes.append("transformers does not read all of this model from GGUF: use llama.cpp.")
        return Written(layouts=written.types, widened=sum(tensor.widened for tensor in carried), notes=notes)
