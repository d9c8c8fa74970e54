"""The child of `bench`, run as `python -m laaciq.speed.child REQUEST`: loads both models and measures them in turns."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteriaList

from laaciq.errors import BadOption, LaaciqError
from laaciq.models import LanguageModel, find_model, load
from laaciq.models.loading import pick_device
from laaciq.options import SpeedOptions
from laaciq.quantization.layers import CUDA_KERNEL_PRODUCTS, QuantizedLinear, why_dequantized
from laaciq.speed.results import ROUNDS, Bench, Kernels, Ratios, Request, SpeedMeasurement


def main() -> None:
    """Print an empty line for every step, then the result as one line of JSON. Libraries that print are redirected to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        request = Request.model_validate_json(sys.argv[1])
        answer: dict[str, Any] = {"result": measure_both(request, lambda: answers.write("\n")).model_dump()}
    except LaaciqError as error:
        answer = {"error": type(error).__name__, "message": str(error)}
    answers.write(json.dumps(answer) + "\n")


def measure_both(request: Request, step: Callable[[], object]) -> Bench:
    options = request.options
    place = pick_device(request.device)
    dtype = options.dtype if options.dtype != "auto" else "bfloat16" if place.type == "cuda" else "float32"
    subjects = []
    for folder in [find_model(source) for source in (request.against, request.checkpoint)]:
        subjects.append(_Subject(load(folder, device=place.type, dtype=getattr(torch, dtype)), options))
        step()
    original, quantized = (subject.model for subject in subjects)
    if original.kind != quantized.kind:
        raise BadOption(
            f"{quantized.folder.name} is {quantized.kind}, {original.folder.name} is {original.kind}: "
            "give the model that it was made from"
        )
    tokens = min(original.vocabulary, quantized.vocabulary)
    ids = torch.randint(tokens, (options.batch, options.prompt_tokens), device=place)
    for _ in range(1 + ROUNDS):
        for subject in subjects:
            subject.run(ids)
            step()
    baseline, candidate = (subject.measured() for subject in subjects)
    return Bench(
        options=options,
        device=torch.cuda.get_device_name(place) if place.type == "cuda" else "cpu",
        dtype=dtype,
        threads=torch.get_num_threads(),
        rounds=ROUNDS,
        original=baseline,
        quantized=candidate,
        ratios=Ratios.of(baseline, candidate),
        kernels=kernels_of(quantized.module),
    )


class _Subject:
    """A loaded model with seconds of prefill and of decoding and the peak memory of its rounds; the first is the warm-up."""

    def __init__(self, model: LanguageModel, options: SpeedOptions) -> None:
        longest, total = model.longest, options.prompt_tokens + options.new_tokens
        if longest is not None and total > longest:
            raise BadOption(
                f"{options.prompt_tokens} tokens of prompt and {options.new_tokens} new ones make {total}, and "
                f"{model.folder.name} takes {longest}: give fewer"
            )
        # Greedy, and exactly `new_tokens`: no end token, and none of the checkpoint's settings such as beams.
        plain = GenerationConfig.from_model_config(model.module.config)
        plain.update(do_sample=False, num_beams=1, max_new_tokens=options.new_tokens, max_length=None, pad_token_id=0)
        plain.eos_token_id = None
        model.module.generation_config = plain
        self.model, self.options = model, options
        self.on_cuda = model.device.type == "cuda"
        self.rounds: list[tuple[float, float, int]] = []

    def run(self, ids: torch.Tensor) -> None:
        if not self.on_cuda:
            self.rounds.append((*self._timed(ids), 0))
            return
        # The other model lies in the same memory and does not count.
        others = torch.cuda.memory_allocated() - weight_bytes(self.model.module)
        torch.cuda.reset_peak_memory_stats()
        self.rounds.append((*self._timed(ids), torch.cuda.max_memory_allocated() - others))

    @torch.no_grad()
    def _timed(self, ids: torch.Tensor) -> tuple[float, float]:
        """Seconds up to the first new token, and from there to the last."""
        module, mask = self.model.module, torch.ones_like(ids)
        began = self._now()
        if self.model.kind == "masked":
            module(input_ids=ids, attention_mask=mask)
            return self._now() - began, 0.0
        ends: list[float] = []

        def record(tokens: torch.Tensor, scores: torch.Tensor, **other: Any) -> torch.Tensor:
            # Waiting for the GPU after every token would slow down what is measured.
            ends.append(self._now() if len(ends) in (0, self.options.new_tokens - 1) else 0.0)
            return torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)

        module.generate(ids, attention_mask=mask, stopping_criteria=StoppingCriteriaList([record]))
        return ends[0] - began, ends[-1] - ends[0]

    def _now(self) -> float:
        if self.on_cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    def measured(self) -> SpeedMeasurement:
        prefill, decoding, peaks = zip(*self.rounds[1:], strict=True)
        options = self.options
        generated = options.batch * (options.new_tokens - 1)
        return SpeedMeasurement(
            model=self.model.folder.name,
            prefill=options.batch * options.prompt_tokens / statistics.median(prefill),
            decoding=None if self.model.kind == "masked" else generated / statistics.median(decoding),
            weight_bytes=weight_bytes(self.model.module),
            peak_bytes=max(peaks) if self.on_cuda else None,
        )


def weight_bytes(module: torch.nn.Module) -> int:
    held = [*module.parameters(), *module.buffers()]
    for layer in _quantized_layers(module):
        held += layer.kernel_grids.values()
    return sum(tensor.nbytes for tensor in held)


def kernels_of(module: torch.nn.Module) -> Kernels | None:
    """The kernels that the layers of one of our checkpoints run on; None for other models."""
    prepared = [(layer.plan, *layer.prepared_for) for layer in _quantized_layers(module) if layer.prepared_for]
    if not prepared:
        return None
    reasons = Counter(filter(None, (why_dequantized(*layer) for layer in prepared)))
    return Kernels(
        int4=len(prepared) - reasons.total(),
        dequantized=reasons.total(),
        reasons=dict(reasons),
        largest_product=CUDA_KERNEL_PRODUCTS if any(device.type == "cuda" for *_, device in prepared) else None,
    )


def _quantized_layers(module: torch.nn.Module) -> list[QuantizedLinear]:
    return [layer for layer in module.modules() if isinstance(layer, QuantizedLinear)]


if __name__ == "__main__":
    main()
