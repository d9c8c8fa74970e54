"""`card`: write the model card of a finished run, the README.md that is uploaded with its checkpoint."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Unpack

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from huggingface_hub.repocard import REGEX_YAML_BLOCK
from huggingface_hub.utils import validate_repo_id

from laaciq.commands.check import RUN_AGAIN, read_evaluation
from laaciq.commands.run_and_baseline import BASELINE
from laaciq.commands.settings import spells_out
from laaciq.engine.environment import environment_words
from laaciq.engine.escaping import command_words, shell_command
from laaciq.engine.file_list import CARD, add_file
from laaciq.engine.files import free_file, write_text
from laaciq.engine.input_files import Refusal, is_file, is_folder, is_there, read_text
from laaciq.engine.json_input import read_record
from laaciq.engine.run_folder import read_marker
from laaciq.engine.yaml_input import parse_mapping
from laaciq.errors import BadOption, BrokenModel
from laaciq.evaluation.results import Evaluation
from laaciq.options import REFERENCE, CardOptions
from laaciq.options.keywords import CardKeywords
from laaciq.planning.decision import Decision
from laaciq.planning.description import describe
from laaciq.profiling.results import Profile
from laaciq.quantization.checkpoint import read_plan
from laaciq.report.card import CardContents, model_card
from laaciq.report.card_head import TAGS, card_head
from laaciq.strict import StrictModel

_CHECKPOINT = "checkpoint"
_ORIGINAL_CARD = Refusal(BadOption, "give --license")


class Card(StrictModel):
    """The written card. `lacking` names what is missing in its metadata, and the option that adds it."""

    path: str
    text: str
    lacking: list[str]


@spells_out(CardOptions, CardKeywords)
def card(
    run: str | Path,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    **options: Unpack[CardKeywords],
) -> Card:
    """Write the model card of a finished run to `README.md` of its checkpoint, or to `out`; options as in `CardOptions`. A file with another
    text, perhaps edited by hand, is replaced only with `overwrite`.

    By default, `base_model` is the model that was quantized, if it came from the hub, and `license` is the one in that model's card. `name`
    is what the quantized model will be called.
    """
    chosen = CardOptions.of(run=run, **options)
    finished = _read_run(Path(run))
    original = finished.evaluation.original
    base_model = _hub_name(chosen.base_model, "base-model") or (
        original if _from_hub(original, "config.json") else None
    )
    licensed = {"license": chosen.license} if chosen.license else _license_of(original)
    contents = _public(finished, base_model=base_model, name=_hub_name(chosen.name, "name"))
    head = card_head(
        contents.evaluation,
        kind=contents.profile.architecture.kind,
        name=contents.name,
        base_model=base_model,
        license=licensed,
    )
    text = model_card(contents, head)
    path = Path(run) / _CHECKPOINT / CARD if out is None else Path(out)
    if not (is_file(path) and path.read_bytes() == text.encode()):
        place = free_file(path, overwrite=overwrite, replaceable=lambda there: TAGS[0] in there)
        if out is None:
            add_file(place.parent, place.name, text.encode())
        else:
            write_text(place, text)
    lacking = []
    if base_model is None:
        lacking.append(f"The metadata lack base_model: {original} did not come from the hub. Give --base-model.")
    if not licensed:
        lacking.append("The metadata lack license: the original has no card here that names one. Give --license.")
    return Card(path=str(path), text=text, lacking=lacking)


def _read_run(run: Path) -> CardContents:
    """Everything that the card needs, from a run that reached its end."""
    marker = read_marker(run)
    command = "" if marker is None else marker.get("command", "")
    words = command_words(command)
    if marker is None or words[:2] != ["laaciq", "run"]:
        raise BadOption(f"{run} is not a run: give the folder of a finished 'laaciq run'")

    def unfinished(reason: str = "") -> BadOption:
        finishing = shell_command([*words, "--out", str(run)])
        return BadOption(f"{run} is not finished{reason}. To finish it, run: {finishing}")

    if not marker.get("finished"):
        raise unfinished()
    needed = ("evaluation.json", "plans.json", "profile.json", _CHECKPOINT)
    if missing := [name for name in needed if not is_there(run / name)]:
        raise unfinished(f": {missing[0]} is missing")
    evaluation, decided = read_evaluation(run), read_record(run / "plans.json", Decision, RUN_AGAIN, within=run)
    folders = decided.plans.folders(run / _CHECKPOINT)
    try:
        stored = {name: read_plan(folder) for name, folder in folders.items()}
    except BrokenModel as error:
        raise unfinished(f": {error}") from None
    if stored != decided.plans.plans or evaluation.quantized != describe(decided.plans):
        raise unfinished(": its checkpoint is not the one that was measured")
    beside = run / f"{BASELINE}evaluation.json"
    measured_beside = is_there(beside) and decided.planning is not None
    return CardContents(
        name="",
        evaluation=evaluation,
        plans=decided.plans,
        planning=decided.planning,
        baseline=read_record(beside, Evaluation, RUN_AGAIN, within=run) if measured_beside else None,
        profile=Profile.read(run / "profile.json", within=run),
        command=command,
        environment=_environment(marker),
    )


def _environment(marker: dict[str, Any]) -> str:
    """What the run was computed with, in words."""
    noted = marker.get("computed_with")
    known = noted if isinstance(noted, dict) else {"laaciq": marker.get("laaciq", "of another version")}
    return environment_words({str(name): str(value) for name, value in known.items()})


def _public(contents: CardContents, *, base_model: str | None, name: str | None) -> CardContents:
    """For publication: the original under its name on the hub, and no folders of this machine."""
    evaluation = contents.evaluation
    original = base_model or _without_folders(evaluation.original)
    shown = {evaluation.original: original}
    words = [shown.get(word, _without_folders(word)) for word in command_words(contents.command)]
    bits = f"{contents.plans.first.size.block_bits_per_weight:.3g}"
    stem = re.sub(r"[^\w.-]+", "-", Path(original).name).strip(".-")
    return CardContents(
        name=name or f"{stem}-laaciq-{bits}bit",
        evaluation=evaluation.model_copy(update={"original": original, "texts": _without_folders(evaluation.texts)}),
        plans=contents.plans,
        planning=contents.planning,
        baseline=contents.baseline,
        profile=contents.profile,
        command=shell_command(words),
        environment=contents.environment,
    )


def _without_folders(name: str) -> str:
    return Path(name).name if Path(name).is_absolute() else name


def _hub_name(name: str | None, option: str) -> str | None:
    if name is None:
        return None
    try:
        validate_repo_id(name)
    except HFValidationError:
        raise BadOption(f"--{option} {name!r} is not a valid name on the hub: give one such as org/model") from None
    return name


def _from_hub(original: str, file: str) -> Path | None:
    """A file of a model in the hub's cache on this machine. Nothing is downloaded: a card must not depend on the network."""
    if original == REFERENCE or is_there(Path(original)):
        return None
    try:
        cached = try_to_load_from_cache(original, file)
    except HFValidationError:
        return None
    return Path(cached) if isinstance(cached, str) else None


def _license_of(original: str) -> dict[str, str]:
    """The entries on the licence in the original's card; empty if it has no card or no such entry."""
    path = Path(original) / CARD if is_folder(Path(original)) else _from_hub(original, CARD)
    if original == REFERENCE or path is None or not is_file(path):
        return {}
    try:
        head = REGEX_YAML_BLOCK.search(read_text(path, _ORIGINAL_CARD))
        metadata = parse_mapping(head.group(2), path, _ORIGINAL_CARD) if head else {}
    except BadOption:
        return {}  # somebody else's card, which cannot be parsed
    return {
        key: metadata[key] for key in ("license", "license_name", "license_link") if isinstance(metadata.get(key), str)
    }
