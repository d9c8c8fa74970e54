"""`export`: write a checkpoint in the format of another library, with exactly the same codes."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from laaciq.commands.settings import read_keywords, spells_out
from laaciq.corpus import read_split
from laaciq.corpus.used_languages import used_languages
from laaciq.engine.files import write_text
from laaciq.engine.progress import default_progress
from laaciq.engine.store import key_of
from laaciq.engine.whole_output import write_whole
from laaciq.errors import BadOption
from laaciq.exporting.folding import changes_numbers, evaluate_folding
from laaciq.exporting.formats import FORMATS
from laaciq.exporting.results import Exported, Misfit
from laaciq.exporting.runtime_rules import require_format, require_rules
from laaciq.exporting.source import read_source, weight_bytes
from laaciq.models import find_model
from laaciq.options import ExportOptions
from laaciq.options.keywords import ExportKeywords

__all__ = ["FORMATS", "RESULT", "Exported", "export"]

RESULT = "export.json"


@spells_out(ExportOptions, ExportKeywords)
def export(checkpoint: str | Path, *, format: str, out: str | Path, **keywords: Unpack[ExportKeywords]) -> Exported:
    """Write `checkpoint`, a folder of ours, to `out` in one of `FORMATS`. Another finished export is replaced only with `overwrite`.

    Keywords: `ExportOptions` and `Settings`. What `runtime` would not load is an error. So is what the format cannot carry; with `fold`, that
    is stored in 16 bits or with the shared scales. If that changes what the model computes, the model is measured before and after on
    `texts`, against the original: name it with `against`.
    """
    chosen, settings = read_keywords(ExportOptions, keywords, checkpoint=checkpoint, format=format)
    progress = settings.progress or default_progress()
    if chosen.runtime is not None:
        require_format(chosen.runtime, format)
    source, folder = read_source(checkpoint), Path(out)
    misfits = FORMATS[format].misfits(source)
    if misfits and not chosen.fold:
        raise BadOption(_refusal(format, misfits))
    if sum(misfit.folded_to == "16 bits" for misfit in misfits) == sum(plan.quantized for plan in source.plan.tensors):
        first = f"{misfits[0].tensor}: {misfits[0].reason}" if misfits else "nothing in it is quantized"
        raise BadOption(f"{format} can carry nothing of {checkpoint} ({first}): export to another format")
    rules = FORMATS[format].rules(source, misfits)
    if chosen.runtime is not None:
        rules = {chosen.runtime: rules.get(chosen.runtime, [])}
        require_rules(chosen.runtime, rules[chosen.runtime])
    changed = changes_numbers(source, misfits)
    if changed and chosen.against is None:
        raise BadOption(
            f"folding {misfits[0].tensor} changes what the model computes. That is measured against the original: name it with --against"
        )
    against = chosen.against if changed else None
    test = None
    if against is not None:
        languages = used_languages(chosen.languages, chosen.texts, find_model(against).path)
        test = read_split(chosen.texts, seed=chosen.seed).select(languages).test

    def fill(partial: Path, parts: Path) -> Exported:
        written = FORMATS[format].write(source, misfits, partial)
        before = after = None
        if against is not None and test is not None:
            before, after = evaluate_folding(
                source,
                misfits,
                test.spread(chosen.passages),
                chosen.measuring(),
                against=against,
                device=settings.device,
                progress=progress,
            )
        result = Exported(
            checkpoint=str(checkpoint),
            format=format,
            folder=str(folder),
            bytes_before=source.weight_bytes,
            bytes_after=weight_bytes(partial),
            layouts=written.layouts,
            widened=written.widened,
            folded=misfits,
            runtimes=rules,
            notes=written.notes,
            before=before,
            after=after,
        )
        write_text(partial / RESULT, result.model_dump_json(indent=1))
        return result

    read = (find_model(checkpoint).fingerprint, None if test is None else test.fingerprint)
    key = key_of("export", str(folder), read, chosen.model_dump(), against and find_model(against).fingerprint)
    return write_whole(
        folder, Exported, fill, command=chosen.command, key=key, overwrite=settings.overwrite, progress=progress
    )


def _refusal(format: str, misfits: list[Misfit]) -> str:
    first, others = misfits[0], len(misfits) - 1
    how = "with its shared scales" if first.folded_to == "shared scales" else "in 16 bits"
    more = f", and {others} more tensors do not fit" if others else ""
    return f"{format} cannot carry {first.tensor}: {first.reason}{more}; --fold stores it {how}"
