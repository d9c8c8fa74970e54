"""`imatrix`: files for llama.cpp's quantizer: an importance matrix over all languages and, with a plan, a type for every tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from laaciq.commands.opening import open_session
from laaciq.commands.settings import read_keywords, spells_out
from laaciq.engine.escaping import shell_command
from laaciq.engine.files import write_text
from laaciq.engine.store import key_of
from laaciq.engine.whole_output import write_whole
from laaciq.exporting.importance import write_importance, write_tensor_types
from laaciq.options import REFERENCE, ImatrixOptions
from laaciq.options.keywords import ImatrixKeywords
from laaciq.planning.decision import plan_file_fingerprint, read_plan_file
from laaciq.planning.rules import equal_weights, served_languages
from laaciq.strict import StrictModel

IMATRIX, TYPES, RESULT = "imatrix.gguf", "types.txt", "imatrix.json"


class Imatrix(StrictModel):
    """The files written to `folder`, the weights of the languages in the matrix, and the command that uses them."""

    folder: str
    weights: dict[str, float]
    files: list[str]
    command: str


@spells_out(ImatrixOptions, ImatrixKeywords)
def imatrix(model: str | Path = REFERENCE, *, out: str | Path, **keywords: Unpack[ImatrixKeywords]) -> Imatrix:
    """Write an importance matrix from the calibration text of all served languages.

    Keywords: `ImatrixOptions` and `Settings`. Languages count equally, or by the weights of `plan`, a file made by `laaciq.plan`; with a plan,
    the types of its tensors are written too. Another finished result is replaced only with `overwrite`.
    """
    chosen, settings = read_keywords(ImatrixOptions, keywords, model=model)
    folder, session = Path(out), open_session(chosen, settings)
    calibration = session.split.calibration

    def fill(partial: Path, parts: Path) -> Imatrix:
        loaded = session.original
        planned = None
        if chosen.plan is not None:
            planned = read_plan_file(Path(chosen.plan), loaded.anatomy, calibration.languages)
        profile = session.profile(calibration)
        weights = planned.weights if planned else {}
        weights = weights or equal_weights(served_languages(profile, chosen.served_bound))
        files, words = [IMATRIX], ["llama-quantize", "--imatrix", str(folder / IMATRIX)]
        write_importance(profile, partial / IMATRIX, weights=weights)
        if planned:
            write_tensor_types(loaded, planned, partial / TYPES)
            files.append(TYPES)
            words += ["--tensor-type-file", str(folder / TYPES)]
        command = shell_command([*words, "MODEL-F16.gguf", "OUT.gguf", "Q4_K_M"])
        result = Imatrix(folder=str(folder), weights=weights, files=files, command=command)
        write_text(partial / RESULT, result.model_dump_json(indent=1))
        return result

    read = (session.fingerprint, calibration.fingerprint, plan_file_fingerprint(chosen.plan))
    key = key_of("imatrix", str(folder), read, chosen.model_dump(), session.place.type)
    with session:
        return write_whole(
            folder,
            Imatrix,
            fill,
            command=chosen.command,
            key=key,
            overwrite=settings.overwrite,
            progress=session.progress,
        )
