"""`evaluate`: a model that anyone quantized, against its original, by language."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from laaciq.engine.progress import Progress
from laaciq.errors import BadOption
from laaciq.evaluation.degradation import evaluate_measurements
from laaciq.evaluation.results import Evaluation
from laaciq.models import LanguageModel, find_model, load
from laaciq.options import BUILTIN, MeasureOptions
from laaciq.trials.candidate import LoadedModel
from laaciq.trials.estimate import estimate, require_memory
from laaciq.trials.session import Session


def evaluate(
    checkpoint: str | Path,
    *,
    against: str | Path,
    texts: str | Path = BUILTIN,
    languages: Iterable[str] | None = None,
    passages: int | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: Progress | None = None,
    **options: object,
) -> Evaluation:
    """What `checkpoint`, a quantized model made by anyone, loses in each language against its original; see `MeasureOptions`. With `out`,
    what is measured is kept there, and `evaluation.json` written."""
    session = Session.open(
        against,
        texts,
        MeasureOptions.of(**options),
        languages=languages,
        passages=passages,
        out=out,
        description={"evaluate": str(checkpoint), "against": str(against)},
        overwrite=overwrite,
        device=device,
        progress=progress,
    )
    test = session.split.test
    require_memory(estimate(session.folder, test, device=session.place), session.place)
    folder = find_model(checkpoint)
    quantized = load(folder, device=device)
    _require_same_tokens(session.original, quantized)
    candidate = LoadedModel("evaluated", folder.fingerprint, quantized)
    (measured,) = session.measure([candidate], test)
    evaluation = evaluate_measurements(
        list(measured.values()),
        original=session.folder.name,
        quantized=str(checkpoint),
        texts=test.name,
        parallel=test.parallel,
        served_bound=session.options.served_bound,
        seed=session.options.seed,
    )
    session.store.write("evaluation.json", evaluation.model_dump_json(indent=1))
    session.store.finish()
    return evaluation


def _require_same_tokens(original: LanguageModel, quantized: LanguageModel) -> None:
    probe = "Habari, 世界! नमस्ते 123"
    if original.kind != quantized.kind:
        raise BadOption(
            f"{quantized.folder.name} is {quantized.kind} and {original.folder.name} is {original.kind}: they are no pair"
        )
    ids = [model.tokenizer(probe, add_special_tokens=False)["input_ids"] for model in (original, quantized)]
    if ids[0] != ids[1]:
        raise BadOption(
            f"{quantized.folder.name} and {original.folder.name} have different tokenizers: they are no pair; "
            f"give the model that it was made from with --against"
        )
