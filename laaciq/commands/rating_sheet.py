"""`rating_sheet`: the continuations of a run as blinded pairs, for people to rate."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from laaciq.commands.check import RUN_AGAIN, read_evaluation
from laaciq.commands.settings import spells_out
from laaciq.corpus.languages import language
from laaciq.engine.escaping import command_words, csv_text
from laaciq.engine.files import write_text
from laaciq.engine.input_files import is_there
from laaciq.engine.json_input import read_record
from laaciq.engine.progress import default_progress
from laaciq.engine.run_folder import read_marker
from laaciq.engine.store import key_of
from laaciq.engine.whole_output import write_whole
from laaciq.errors import BadOption
from laaciq.evaluation.continuations import Continuations
from laaciq.evaluation.generation_trial import GENERATION
from laaciq.evaluation.ratings import BlindPair, KeyEntry, RatingKey, blind_pairs
from laaciq.options import RatingSheetOptions
from laaciq.options.keywords import RatingSheetKeywords
from laaciq.report.rating_form import rating_form
from laaciq.strict import StrictModel

KEY, SHEETS = "key.json", "sheets"
_COLUMNS = ("item", "language", "prompt", "A", "B", "choice")


class RatingSheet(StrictModel):
    """What was written: pairs per language, and how many more prompts both models continue alike."""

    folder: str
    pairs: dict[str, int]
    identical: dict[str, int]


@spells_out(RatingSheetOptions, RatingSheetKeywords)
def rating_sheet(
    run: str | Path, *, out: str | Path, overwrite: bool = False, **options: Unpack[RatingSheetKeywords]
) -> RatingSheet:
    """Write a sheet per language to `out/sheets`, as CSV and as an HTML form, and the key to `out/key.json`; options as in
    `RatingSheetOptions`.

    `run` is the folder of a finished run with `generate`. Give raters the sheets, and not the key. Another finished folder is replaced
    only with `overwrite`.
    """
    chosen = RatingSheetOptions.of(run=run, **options)
    evaluation = read_evaluation(Path(chosen.run))
    continued = _continuations(Path(chosen.run), chosen.languages)
    pairs = blind_pairs(continued, pairs=chosen.pairs, seed=chosen.seed)
    if not pairs:
        raise BadOption(f"both models continue every prompt of {chosen.run} alike: there is nothing to rate")
    identical = {c.language: sum(p.original == p.quantized for p in c.prompts) for c in continued}
    key = RatingKey(
        original=evaluation.original,
        quantized=evaluation.quantized,
        identical=identical,
        pairs=[KeyEntry(item=pair.item, language=pair.language, original=side) for pair, side in pairs],
    )
    sheets = {c.language: [pair for pair, _ in pairs if pair.language == c.language] for c in continued}

    def fill(partial: Path, parts: Path) -> RatingSheet:
        write_text(partial / KEY, key.model_dump_json(indent=1))
        for code, shown in sheets.items():
            if shown:
                write_text(partial / SHEETS / f"{code}.csv", _sheet(shown))
                write_text(partial / SHEETS / f"{code}.html", rating_form(language(code).name, code, shown))
        counts = {code: len(shown) for code, shown in sheets.items()}
        return RatingSheet(folder=str(out), pairs=counts, identical=identical)

    decided = key_of("rating-sheet", key.model_dump(), [pair.model_dump() for pair, _ in pairs])
    return write_whole(
        Path(out), RatingSheet, fill, command=chosen.command, key=decided, overwrite=overwrite,
        progress=default_progress(),
    )  # fmt: skip


def _sheet(pairs: list[BlindPair]) -> str:
    rows = [[pair.item, pair.language, pair.prompt, pair.A, pair.B, ""] for pair in pairs]
    return csv_text([_COLUMNS, *rows])


def _continuations(run: Path, languages: tuple[str, ...] | None) -> list[Continuations]:
    """Of the languages of a run that generated."""
    marker = read_marker(run) or {}
    folder = run / GENERATION
    if "--generate" not in command_words(marker.get("command", "")) or not is_there(folder):
        raise BadOption(f"{run} has no continuations: give the folder of a finished 'laaciq run' with --generate")
    files = {path.stem: path for path in sorted(folder.glob("*.json"))}
    codes = list(files) if languages is None else [language(name).code for name in languages]
    if missing := [code for code in codes if code not in files]:
        raise BadOption(f"{run} has no continuations in {missing[0]}: it has {', '.join(files)}")
    read = [read_record(files[code], Continuations, RUN_AGAIN, within=run) for code in codes]
    if wrong := [code for code, found in zip(codes, read, strict=True) if found.language != code]:
        raise RUN_AGAIN.of(files[wrong[0]], "holds another language")
    return read
