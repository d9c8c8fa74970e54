"""The child of `bench`, run as `python -m laaciq.speed.child REQUEST`: loads both models and measures them in turns."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteriaList

from laaciq.errors import BadOption, LaaciqError
from laaciq.models import LanguageModel, find_model, load
from laaciq.models.computing import pick_device
from laaciq.options import SpeedOptions
from laaciq.speed.compiled import CompiledDecoding
from laaciq.speed.layers import kernels_of, weight_bytes
from laaciq.speed.results import ROUNDS, Bench, Ratios, Request, SpeedMeasurement


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
    not_compiled = {subject.model.folder.name: subject.not_compiled for subject in subjects if subject.not_compiled}
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
        not_compiled=not_compiled,
    )


@dataclass(frozen=True)
class _Round:
    """Seconds, and bytes on CUDA. None is what was not measured."""

    prefill: float
    decoding: float | None
    compiled_decoding: float | None
    peak: int | None


class _Subject:
    """A loaded model with what its rounds took; the first is the warm-up."""

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
        self.eager = options.decoding != "compiled"
        self.compiles = options.decoding in ("compiled", "both") or (options.decoding == "auto" and self.on_cuda)
        self.compiled: CompiledDecoding | None = None
        self.not_compiled: str | None = None
        self.rounds: list[_Round] = []
        if self.compiles and model.kind != "causal":
            self.not_compiled = f"decoding is compiled for causal models, and this one is {model.kind}"
            self.compiles = False

    def run(self, ids: torch.Tensor) -> None:
        # The other model lies in the same memory and does not count.
        others = torch.cuda.memory_allocated() - weight_bytes(self.model.module) if self.on_cuda else 0
        if self.on_cuda:
            torch.cuda.reset_peak_memory_stats()
        prefill, decoding = self._timed(ids) if self.eager or not self.compiles else (None, None)
        compiled_prefill, compiled_decoding = self._compiled(ids) if self.compiles else (None, None)
        peak = torch.cuda.max_memory_allocated() - others if self.on_cuda else None
        # Compiled or not, the prompt is not.
        prefill = compiled_prefill if prefill is None else prefill
        if prefill is None:
            raise LaaciqError(f"decoding could not be compiled: {self.not_compiled}; give --decoding eager")
        self.rounds.append(_Round(prefill, decoding if self.eager else None, compiled_decoding, peak))

    def _compiled(self, ids: torch.Tensor) -> tuple[float | None, float | None]:
        new_tokens = self.options.new_tokens
        try:
            if self.compiled is None:
                self.compiled = CompiledDecoding(self.model.module, longest=self.options.prompt_tokens + new_tokens)
                # The first run compiles, the next one records a CUDA graph, which is then replayed.
                for _ in range(2):
                    self.compiled.run(ids, new_tokens)
            return self.compiled.run(ids, new_tokens)
        except Exception as error:  # whatever keeps torch from compiling this model
            self.not_compiled = f"{type(error).__name__}: {f'{error}'.strip().partition(chr(10))[0]}"
            self.compiles = False
            return None, None

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
        options, rounds = self.options, self.rounds[1:]
        generated = options.batch * (options.new_tokens - 1)
        causal = self.model.kind != "masked"
        peaks = [done.peak for done in rounds if done.peak is not None]
        return SpeedMeasurement(
            model=self.model.folder.name,
            prefill=options.batch * options.prompt_tokens / statistics.median(done.prefill for done in rounds),
            decoding=_speed(generated, [done.decoding for done in rounds]) if causal else None,
            compiled_decoding=_speed(generated, [done.compiled_decoding for done in rounds]),
            weight_bytes=weight_bytes(self.model.module),
            peak_bytes=max(peaks, default=None),
        )


def _speed(tokens: int, seconds: list[float | None]) -> float | None:
    measured = [second for second in seconds if second is not None]
    return tokens / statistics.median(measured) if measured else None


if __name__ == "__main__":
    main()
