"""`evaluate`: a model that anyone quantized, against its original, by language."""

from __future__ import annotations

from pathlib import Path

from laaciq.corpus import read_split
from laaciq.engine.progress import Progress
from laaciq.errors import BadOption
from laaciq.evaluation import Evaluation, evaluate_measurements, measure
from laaciq.models import LanguageModel, find_model, load
from laaciq.models.loading import pick_device
from laaciq.options import EvaluateOptions
from laaciq.quantization.switch import for_language
from laaciq.trials.estimate import estimate, require_memory


def evaluate(
    checkpoint: str | Path,
    *,
    against: str | Path,
    device: str = "auto",
    progress: Progress | None = None,
    **options: object,
) -> Evaluation:
    """What `checkpoint`, a quantized model made by anyone, loses in each language against its original; options as in `EvaluateOptions`."""
    progress = progress or Progress()
    chosen = EvaluateOptions.of(checkpoint=checkpoint, against=against, **options)
    asked = chosen.measuring()
    original_folder = find_model(chosen.against)
    test = read_split(chosen.texts, seed=chosen.seed).select(chosen.languages).test
    test = test if chosen.passages is None else test.spread(chosen.passages)
    require_memory(estimate(original_folder, test, device=pick_device(device)), pick_device(device))
    folder = find_model(chosen.checkpoint)
    original, quantized = load(original_folder, device=device), load(folder, device=device)
    _require_same_tokens(original, quantized)
    with progress.stage("measuring", sum(map(len, test.by_language.values()))) as advance:
        measurements = []
        for code, passages in test.by_language.items():
            with for_language(quantized, code):
                measurements.append(measure(original, quantized, passages, asked, advance=advance))
    return evaluate_measurements(
        measurements,
        original=original_folder.name,
        quantized=str(checkpoint),
        texts=test.name,
        parallel=test.parallel,
        served_bound=asked.served_bound,
        seed=asked.seed,
    )


def _require_same_tokens(original: LanguageModel, quantized: LanguageModel) -> None:
    probe = "Habari, 世界! नमस्ते 123"
    if original.kind != quantized.kind:
        raise BadOption(
            f"{quantized.folder.name} is {quantized.kind}, {original.folder.name} is {original.kind}: no pair"
        )
    ids = [m.tokenizer(probe, add_special_tokens=False)["input_ids"] for m in (original, quantized)]
    if ids[0] != ids[1]:
        raise BadOption(
            f"{quantized.folder.name} and {original.folder.name} have different tokenizers: they are no pair; "
            f"give the model that it was made from with --against"
        )
