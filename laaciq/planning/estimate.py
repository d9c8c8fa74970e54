"""Time and memory of planning, quantizing and measuring by stage, estimated before a model is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Literal

from laaciq.corpus import Split, Texts, language
from laaciq.engine.work import Work
from laaciq.options import WeightOptions, find_method
from laaciq.planning.baseline import ENGLISH
from laaciq.planning.curvature_batches import are_separable, gradient_tokens, sum_bytes, token_bytes
from laaciq.planning.decision import needs_profile, profiled_texts, read_plan_file
from laaciq.planning.planner import EFFORT_PRESETS, EffortPreset
from laaciq.planning.rules import held_out
from laaciq.planning.runtimes import RUNTIMES
from laaciq.planning.search import FRONT
from laaciq.planning.search_space import TRIED_OUTPUTS
from laaciq.planning.tensor_groups import base_plans
from laaciq.quantization.operations import (
    block_by_block,
    cholesky,
    grid_search,
    rounding,
    second_moments,
    tuned_batches,
    tuning,
)
from laaciq.quantization.plan import Plan, TensorPlan
from laaciq.quantization.tuning import STEP_TOKENS, steps_per_epoch, tuned_bytes, validation_passages
from laaciq.scoring.operations import Reading, backward, forward, scoring
from laaciq.trials.estimate import CostModel, StageCost
from laaciq.trials.memory import Demand, packed_bytes

Last = Literal["plan", "checkpoint", "measurement"]
# Seconds of HiGHS per tensor group, for one allocation.
_ALLOCATION_SECONDS = 0.006
# Tokenizer and configuration of a checkpoint, and numbers read per weight when codes are packed and written.
_WRITE_CALLS, _PACKED = 3e5, 40.0
# Bytes that an accelerator copies from memory in the time in which one byte of a checkpoint is written and the disk has it.
_WRITTEN = 10.0
# Resampling and report of a run.
_REPORT_CALLS = 1e6


def estimate_stages(
    costs: CostModel,
    split: Split,
    options: WeightOptions,
    *,
    baseline: bool = False,
    last: Last = "measurement",
    served: Iterable[str] | None = None,
) -> list[StageCost]:
    """The cost of every stage of `plan`, `quantize` or `run`, up to the `last`. `baseline` is measured too. Languages that are `served`
    (None: all) decide, and are measured in full.
    """
    quantizing = _Quantizing(costs, split, options, None if served is None else list(served))
    stages = [costs.loading()]
    if needs_profile(options) or last == "measurement":
        stages.append(costs.profiling(profiled_texts(split, options)))
    stages += quantizing.planning() if quantizing.planned else []
    if last == "plan":
        return stages
    stages += quantizing.checkpoint()
    beside = baseline and quantizing.planned
    if beside:
        stages += quantizing.baseline().checkpoint("baseline: ")
    if last == "measurement":
        stages.append(costs.measuring(split.test, 2 if beside else 1, served=served))
        stages.append(costs.stage("report", Work(calls=_REPORT_CALLS)))
    return stages


def memory_demand(options: WeightOptions) -> Demand:
    """What these options need memory for, as far as they say it: a plan file may need all."""
    if options.plan is not None:
        return Demand()
    method = find_method(options.method)
    return Demand(moments=method.rounding != "nearest" or method.adaptive, tuning=_tuned(options) > 0)


def _tuned(options: WeightOptions) -> int:
    """Epochs of tuning."""
    if options.tune is not None:
        return options.tune
    return EFFORT_PRESETS[options.effort].tuned if find_method(options.method).planned else 0


@dataclass(frozen=True)
class _Quantizing:
    """One way to quantize. `served` are the languages that may decide, None if they are not known yet."""

    costs: CostModel
    split: Split
    options: WeightOptions
    served: list[str] | None

    @property
    def planned(self) -> bool:
        return self.options.plan is None and find_method(self.options.method).planned

    @property
    def preset(self) -> EffortPreset:
        return EFFORT_PRESETS[self.options.effort]

    @cached_property
    def languages(self) -> list[str]:
        """The languages whose text decides."""
        if self.given is not None and self.given.languages:
            return self.given.languages
        chosen = self.options.calibration_languages or self.served or self.split.calibration.languages
        without = held_out(self.options)
        return [code for code in (language(name).code for name in chosen) if code not in without]

    @cached_property
    def given(self) -> Plan | None:
        """The plan in the file that the options name."""
        if self.options.plan is None:
            return None
        return read_plan_file(Path(self.options.plan), self.costs.model.anatomy, self.split.calibration.languages)

    @cached_property
    def tensors(self) -> list[TensorPlan]:
        """The tensors as they will be stored, in what affects the work."""
        options, anatomy = self.options, self.costs.model.anatomy
        if self.given is not None:
            return self.given.tensors
        method = find_method(options.method)
        whole = options.embedding_bits is not None or options.budget_for == "model"
        changes = {"bits": options.bits, "clip": method.clip, "rounding": method.rounding, "keep": options.keep}
        plans = base_plans(anatomy, symmetric=options.symmetric, token_matrices=whole)
        return [
            plan.model_copy(update={"bits": options.bits} if plan.used_by else {**changes, "rank": options.rank})
            for plan in plans
        ]

    @cached_property
    def passages(self) -> int:
        """Passages per language for second-order rounding and tuning; see `Planner.calibration_passages`."""
        texts = self._calibration()
        most = max(map(len, texts.by_language.values()), default=0)
        if self.given is not None and self.given.passages is not None:
            return min(most, self.given.passages)
        if not self.planned or not most:
            return most
        tokens = self.costs.read(texts).read / sum(map(len, texts.by_language.values()))
        return min(most, self._share(ceil(self.preset.tokens * self.costs.shape.most_tokens / max(tokens, 1))))

    @property
    def adaptive(self) -> bool:
        return find_method(self.options.method).adaptive if self.given is None else bool(self.given.tables)

    @property
    def tuned(self) -> int:
        return _tuned(self.options) if self.given is None else self.given.tuned

    @cached_property
    def calibrated(self) -> Reading:
        """The text for second-order rounding and tuning."""
        return self.costs.read(self._calibration().spread(self.passages))

    @cached_property
    def validated(self) -> Reading:
        """The text that plans are measured on."""
        return self.costs.scored(self._validation().spread(self._share(self.preset.validation)))

    def baseline(self) -> _Quantizing:
        english = WeightOptions(method="gptq", calibration_languages=(ENGLISH,))
        return replace(self, options=english)

    def planning(self) -> list[StageCost]:
        costs, shape, preset = self.costs, self.costs.shape, self.preset
        tried = 1 + preset.rounds + preset.probes
        allocations = 2 + preset.probes + (len(FRONT) if preset.front else 0)
        allocating = StageCost(_ALLOCATION_SECONDS * len(self.tensors) * allocations, 0.0, name="allocation")
        validation = scoring(shape, self.validated, 1, on_cpu=self._on_cpu) + Work(elements=60 * shape.parameters)
        return [
            self._curvature(),
            costs.stage("second moments", self._gains(), more_bytes=self._moment_bytes(), readings=1),
            costs.stage("predicted losses", self._prediction()),
            allocating,
            self._rounding(f"rounding of {tried} plans", tried),
            costs.stage(
                f"validation of {tried} plans",
                validation * tried,
                models=2,
                logits=2,
                readings=tried * self.validated.batches,
            ),
        ]

    def checkpoint(self, prefix: str = "") -> list[StageCost]:
        """Cost of rounding (unless planning has done it), tuning and writing."""
        costs, count = self.costs, len(self.languages) if self.options.separate else 1
        stages = [] if self.planned else [self._rounding(f"{prefix}rounding", count)]
        if self.tuned:
            stages.append(self._tuning(f"{prefix}tuning"))
        written = _WRITTEN * packed_bytes(costs.shape)
        packing = Work(elements=_PACKED * costs.shape.parameters, calls=_WRITE_CALLS, copied=written) * count
        return [*stages, costs.stage(f"{prefix}writing", packing, more_bytes=costs.shape.parameters)]

    def _curvature(self) -> StageCost:
        """Cost of gradients, each passage's squared and pooled."""
        costs, shape = self.costs, self.costs.shape
        texts = self._calibration().spread(self._share(self.preset.curvature))
        most = self._gradient_tokens(len(texts.languages))
        sequences = costs.in_batches(texts, most)
        rows = costs.in_batches(texts, 1).batches
        squared = Work(elements=12 * shape.weights, calls=20 * sum(map(len, shape.matrices))) * rows
        work = forward(shape, sequences) + backward(shape, sequences) + squared
        more = sum_bytes(shape, len(texts.languages))
        if most > 1:
            more += min(most, sequences.tokens) * token_bytes(shape, number_bytes=costs.number_bytes)
        # Forward, and again for gradients.
        return costs.stage("curvature", work, more_bytes=more, readings=2 * sequences.batches)

    def _gradient_tokens(self, languages: int) -> int:
        """Padded tokens of a batch for curvature, as `measure_curvature` chooses them."""
        costs = self.costs
        if not are_separable(costs.model.anatomy, {tensor.name for tensor in self.tensors}):
            return 1
        return gradient_tokens(costs.shape, languages, costs.device, number_bytes=costs.number_bytes)

    def _gains(self) -> Work:
        """Cost of the second moments of every layer, and of their pivots."""
        shape = self.costs.shape
        factors = sum((cholesky(inputs) for block in shape.inputs for inputs in block), Work())
        return second_moments(shape, self.calibrated) + factors

    def _moment_bytes(self) -> float:
        """Second moments of the layers of one block, and what factorizes the widest."""
        shape = self.costs.shape
        return max(4 * sum(i * i for i in block) for block in shape.inputs) * 1.5 + 40 * shape.widest**2

    def _prediction(self) -> Work:
        """Cost of rounding some outputs of every tensor to nearest in every format."""
        formats = sum(storage.bits < 16 for storage in RUNTIMES[self.options.runtime].formats[self.options.effort])
        work = Work()
        for tensor in self.tensors:
            outputs = min(tensor.shape[0], TRIED_OUTPUTS)
            work = work + grid_search(outputs, tensor.shape[1], on_cpu=self._on_cpu) + Work(calls=60)
        return work * formats

    def _rounding(self, name: str, times: int) -> StageCost:
        costs, shape = self.costs, self.costs.shape
        languages = len(self.languages)
        work = sum((rounding(tensor, languages, on_cpu=self._on_cpu) for tensor in self.tensors), Work())
        # The codes of a block, and its weights in float32 while they are rounded.
        more = 12.0 * shape.weights / shape.blocks
        if any(tensor.rounding != "nearest" for tensor in self.tensors):
            compensated = any(tensor.rounding == "compensated" for tensor in self.tensors)
            work = work + block_by_block(shape, self.calibrated, compensated=compensated)
            hidden = costs.number_bytes * self.calibrated.tokens * shape.width * (2 if compensated else 1)
            # Second moments of one block: few for a dense model, hundreds for one with experts.
            moments = (8 if compensated else 4) * max(sum(width**2 for width in inputs) for inputs in shape.inputs)
            more += hidden + max(60 * shape.widest**2, 30 * shape.widest**2 + moments)
        elif self.adaptive:
            work = work + second_moments(shape, self.calibrated)
            work = work + Work(products=8 * sum(o * i * i for block in shape.matrices for o, i in block))
            more += self._moment_bytes()
        return costs.stage(name, work * times, more_bytes=more, readings=times)

    def _tuning(self, name: str) -> StageCost:
        costs, shape = self.costs, self.costs.shape
        held = costs.read(self._validation().spread(validation_passages(self.passages)))
        steps = steps_per_epoch(self.calibrated.read, costs.device)
        work = tuning(shape, self.calibrated, held, self.tuned, steps=steps, on_cpu=self._on_cpu)
        if not self._on_cpu:
            readings = self.calibrated.batches + held.batches
            codes = packed_bytes(shape)
            near, away = (0.0, codes) if costs.placement.away else (codes, 0.0)
            # Codes that are away are copied for every forward pass, and twice for gradients.
            times = 3 * self.tuned * tuned_batches(steps, on_cpu=False) + (self.tuned + 1) * held.batches
            work = work + Work(pinned=away * times)
            stage = costs.stage(name, work, more_bytes=tuned_bytes(shape) + near, readings=readings)
            # What the original's last block returns.
            hidden = costs.number_bytes * (self.calibrated.read + held.read) * shape.width
            return replace(stage, memory_bytes=stage.memory_bytes + away + hidden)
        activations = 4 * STEP_TOKENS * (20 * shape.width + 6 * shape.widest)
        of_blocks = 9.0 * shape.weights + activations * shape.blocks
        # Blocks that are dequantized when they run, and again for their gradients: one at a time is in memory.
        if costs.placement.packed:
            of_blocks = 20 * shape.weights / shape.blocks + activations + 4 * STEP_TOKENS * shape.blocks * shape.width
        outside = 8 * (shape.parameters - shape.weights) + 12 * STEP_TOKENS * shape.vocabulary
        return costs.stage(name, work, logits=2, more_bytes=of_blocks + outside)

    @property
    def _on_cpu(self) -> bool:
        return self.costs.device.type == "cpu"

    def _calibration(self) -> Texts:
        return self.split.calibration.select(self.languages)

    def _validation(self) -> Texts:
        return self.split.validation.select(self.languages)

    def _share(self, passages: int) -> int:
        return -(-passages // max(1, len(self.languages)))
