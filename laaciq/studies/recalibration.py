"""One model quantized many times by second-order rounding, each time with other calibration text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch

from laaciq.engine.progress import Advance
from laaciq.engine.store import key_of
from laaciq.engine.workers import Pending
from laaciq.options import GridOptions
from laaciq.options.methods import find_method
from laaciq.profiling.activations import prepare_whole, text_masks
from laaciq.quantization.calibration import Calibration
from laaciq.quantization.grid import Layers
from laaciq.quantization.model import quantize_model
from laaciq.quantization.plan import Plan, TensorPlan, count_size
from laaciq.trials.candidate import InMemory
from laaciq.trials.losses import Losses
from laaciq.trials.measurement import Measurement
from laaciq.trials.session import ORIGINAL, Session

METHOD = find_method("gptq")
MeasuredPart = Literal["validation", "test"]


@dataclass
class Recalibrations:
    """Candidates that differ in the weights of languages and in the number of passages per language."""

    session: Session
    grid: GridOptions
    _losses: dict[str, dict[MeasuredPart, Losses]] = field(default_factory=dict, init=False, repr=False)
    _ahead: dict[str, Pending[None]] = field(default_factory=dict, init=False, repr=False)

    def start(self, settings: Iterable[tuple[dict[str, float], int]], *, first: bool = False) -> None:
        """Hand candidates that will be needed to workers, if there are any; `first`, before all that wait."""
        session = self.session
        if not session.workers.apart:
            return
        for weights, passages in settings:
            candidate = self.candidate(weights, passages)
            if candidate.key not in self._ahead and not self._measured(candidate):
                name = f"{len(weights)} × {passages} passages"
                task = Recalibration(name, candidate.name, session.split.test.languages, self._grid, weights, passages)
                self._ahead[candidate.key] = session.submit(task, first=first)

    def losses(self, part: MeasuredPart, weights: dict[str, float], passages: int) -> Losses:
        """KL on validation text, because it varies far less between passages and so gives better choices; ΔNLL on test text."""
        candidate = self.candidate(weights, passages)
        if candidate.key not in self._losses:
            self._await(weights, passages)
            validation, test = self.measure(candidate)
            split, seed = self.session.split, self.session.options.seed
            self._losses[candidate.key] = {
                "validation": Losses.measured(
                    validation, parallel=split.validation.parallel, seed=seed, divergence=True
                ),
                "test": Losses.measured(test, parallel=split.test.parallel, seed=seed),
            }
        return self._losses[candidate.key][part]

    def measure(self, candidate: InMemory) -> tuple[dict[str, Measurement], dict[str, Measurement]]:
        """On validation and test text, both at once, so that the model is quantized only once."""
        session, split = self.session, self.session.split
        (validation,) = session.measure([candidate], split.validation, part="validation")
        return validation, session.losses(candidate, split.test, part="test")

    def _await(self, weights: dict[str, float], passages: int) -> None:
        """Until a worker has stored the measurements of this candidate."""
        self.start([(weights, passages)], first=True)
        pending = self._ahead.get(self.candidate(weights, passages).key)
        if pending is not None and not pending.ended:
            workers = self.session.workers
            with self.session.progress.stage("quantizing and measuring", 1, working=lambda: workers.working):
                pending.result()

    def _measured(self, candidate: InMemory) -> bool:
        session, split = self.session, self.session.split
        parts = {"validation": split.validation, "test": split.test}
        return not any(
            session.pending(f"{candidate.name}/{part}", candidate.key, texts) for part, texts in parts.items()
        )

    def candidate(self, weights: dict[str, float], passages: int) -> InMemory:
        """Second-order rounding with these weights of languages."""
        session, plan = self.session, self._plan(weights, passages)
        key = key_of("recalibrated", session.split.calibration.fingerprint, plan.model_dump())

        def quantize() -> tuple[Layers, Mapping[str, torch.Tensor]]:
            calibration = Calibration(None, session.split.calibration, session.options)
            title = f"rounding, {len(plan.weights)} × {passages} passages"
            layers, _ = quantize_model(session.original, plan, calibration, progress=session.progress, title=title)
            return list(layers), {}

        # Named by its key, so that two equal mixes share measurements.
        return InMemory(f"mixtures/{key[:16]}", key, plan, quantize)

    def numbers(self, wanted: Iterable[int]) -> list[int]:
        """The available numbers of passages, ascending; all passages come last."""
        most = max(map(len, self.session.split.calibration.by_language.values()))
        return sorted({number for number in wanted if number < most} | {most})

    def tokens(self, codes: Iterable[str], passages: int) -> dict[str, int]:
        """Number of tokens of the text, without start tokens."""
        model, texts = self.session.original, self.session.split.calibration.select(codes).spread(passages)
        counts = {}
        for code, of_language in texts.by_language.items():
            sequences = [
                s for passage in prepare_whole(model, of_language, self.session.options) for s in passage.sequences
            ]
            counts[code] = sum(int(mask.sum()) for s in sequences for mask in text_masks(model, [s]).values())
        return counts

    @property
    def _grid(self) -> GridOptions:
        return self.grid.group(GridOptions)

    def _plan(self, weights: dict[str, float], passages: int) -> Plan:
        anatomy = self.session.original.anatomy
        grid = self._grid.model_dump()
        tensors = [
            TensorPlan(name=linear.name, shape=linear.shape, clip=METHOD.clip, rounding=METHOD.rounding, **grid)
            for linear in anatomy.linears
        ]
        return Plan(
            method=METHOD.name,
            tensors=tensors,
            size=count_size(tensors, anatomy),
            weights=weights,
            passages=passages,
        )


@dataclass(frozen=True)
class Recalibration:
    """A candidate, quantized and measured by one worker in the languages that are served. Its result is what is stored."""

    name: str
    candidate: str
    served: list[str]
    grid: GridOptions
    weights: dict[str, float]
    passages: int

    @property
    def reads(self) -> tuple[str, ...]:
        return (f"trials/{ORIGINAL}/", f"trials/{self.candidate}/")

    def run(self, session: Session, advance: Advance) -> None:
        trials = Recalibrations(session.on(session.split.select(self.served)), self.grid)
        trials.measure(trials.candidate(self.weights, self.passages))
        advance(1)
