"""One model quantized over and over by second-order rounding, each time calibrated on other text, and measured by language."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from laaciq.corpus import Split, Texts
from laaciq.engine.progress import Progress
from laaciq.engine.store import RunFolder, key_of
from laaciq.models import LanguageModel
from laaciq.options import GridOptions, MeasureOptions
from laaciq.planning.methods import find_method
from laaciq.profiling.activations import readings, text_masks
from laaciq.quantization import Calibration
from laaciq.quantization.grid import QuantizedMatrix
from laaciq.quantization.model import quantize_layers
from laaciq.quantization.plan import Plan, TensorPlan, count_size
from laaciq.scoring.likelihood import score
from laaciq.scoring.sequences import ScoredPassage, prepare_all
from laaciq.studies.differences import losses_of
from laaciq.studies.losses import PassageLosses, nll_by_passage
from laaciq.trials.losses import Losses
from laaciq.trials.quantized_copy import copy_of, simulate

METHOD = find_method("gptq")
Part = Literal["validation", "test"]


class _Heard(BaseModel):
    """The original on one part of the texts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    languages: dict[str, PassageLosses]


class _Measured(BaseModel):
    """One quantization, by language and passage: KL(original ‖ quantized) in nats on validation text, NLL on test text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weights: dict[str, float]
    passages: int
    validation: dict[str, list[float]]
    test: dict[str, list[float]]


@dataclass
class Recalibrations:
    """What is asked is what each language counts, and how many passages of each are read. Nothing is computed twice."""

    model: LanguageModel
    split: Split
    options: MeasureOptions
    grid: GridOptions
    store: RunFolder | None
    progress: Progress
    _measured: dict[str, _Measured] = field(default_factory=dict, init=False)
    _heard: dict[Part, dict[str, PassageLosses]] = field(default_factory=dict, init=False)

    def serving(self, codes: list[str]) -> Recalibrations:
        """The same on these languages alone."""
        heard = self.original("validation")
        fewer = replace(self, split=self.split.select(codes))
        fewer._heard["validation"] = {code: heard[code] for code in codes}
        return fewer

    def losses(self, part: Part, weights: dict[str, float], passages: int) -> Losses:
        """KL on validation text, since it varies far less from passage to passage, and choosing needs that; ΔNLL on test text."""
        found, heard = self._quantized(weights, passages), self.original(part)
        if part == "validation":
            texts, loss = self.split.validation, found.validation
        else:
            texts = self.split.test
            loss = {code: (np.array(nll) - heard[code].nll).tolist() for code, nll in found.test.items()}
        return losses_of(texts, loss, {code: heard[code].tokens for code in loss}, seed=self.options.seed)

    def original(self, part: Part) -> dict[str, PassageLosses]:
        if part not in self._heard:
            texts = self.split.validation if part == "validation" else self.split.test
            key = key_of("original", self._key(texts))

            def compute() -> _Heard:
                return self._hear(part, texts)

            name = f"original-{part}.json"
            found = compute() if self.store is None else self.store.result(name, _Heard, key, compute)
            self._heard[part] = found.languages
        return self._heard[part]

    def numbers(self, wanted: Iterable[int]) -> list[int]:
        """Those that there are, ascending; all passages come last."""
        most = max(map(len, self.split.calibration.by_language.values()))
        return sorted({number for number in wanted if number < most} | {most})

    def tokens(self, codes: Iterable[str], passages: int) -> dict[str, int]:
        """Of the text itself, without start tokens."""
        texts = self.split.calibration.select(codes).spread(passages)
        found = {}
        for code, own in texts.by_language.items():
            sequences = [s for passage in readings(self.model, own, self.options) for s in passage.sequences]
            found[code] = sum(int(mask.sum()) for s in sequences for mask in text_masks(self.model, [s]).values())
        return found

    def _quantized(self, weights: dict[str, float], passages: int) -> _Measured:
        plan = self._plan(weights, passages)
        key = key_of("recalibrated", self._split_key, plan.model_dump())

        def compute() -> _Measured:
            return self._quantize_and_measure(plan, passages)

        if key not in self._measured:
            # Named by its key: two mixes that turn out to be one share the file.
            name = f"quantizations/{key[:16]}.json"
            self._measured[key] = compute() if self.store is None else self.store.result(name, _Measured, key, compute)
        return self._measured[key]

    def _plan(self, weights: dict[str, float], passages: int) -> Plan:
        grid = self.grid.model_dump(include=set(GridOptions.model_fields))
        tensors = [
            TensorPlan(name=linear.name, shape=linear.shape, clip=METHOD.clip, rounding=METHOD.rounding, **grid)
            for linear in self.model.anatomy.linears
        ]
        size = count_size(tensors, self.model.anatomy)
        return Plan(method=METHOD.name, tensors=tensors, size=size, weights=weights, passages=passages)

    def _quantize_and_measure(self, plan: Plan, passages: int) -> _Measured:
        known = Calibration(None, self.split.calibration, self.options)
        validation, test = self._prepared(self.split.validation), self._prepared(self.split.test)
        title = f"{len(plan.weights)} × {passages} passages"
        with self.progress.stage(title, len(plan.tensors) + len(validation) + len(test)) as advance:

            def layers() -> Iterator[tuple[TensorPlan, QuantizedMatrix]]:
                for layer in quantize_layers(self.model, plan, known):
                    yield layer
                    advance(1)

            simulate(self.model, self._twin, layers())
            kl, nll = {}, {}
            for code, own in validation.items():
                kl[code] = score(self.model, self._twin, own).kl.tolist()
                advance(1)
            for code, own in test.items():
                nll[code] = nll_by_passage(self._twin, own).tolist()
                advance(1)
        return _Measured(weights=plan.weights, passages=passages, validation=kl, test=nll)

    def _hear(self, part: Part, texts: Texts) -> _Heard:
        prepared, found = self._prepared(texts), {}
        with self.progress.stage(f"original, {part} text", len(prepared)) as advance:
            for code, own in prepared.items():
                found[code] = PassageLosses(
                    nll=nll_by_passage(self.model, own).tolist(),
                    tokens=[sum(len(s.targets) for s in passage.sequences) for passage in own],
                    bytes=[passage.scored_bytes for passage in own],
                )
                advance(1)
        return _Heard(languages=found)

    def _prepared(self, texts: Texts) -> dict[str, list[ScoredPassage]]:
        asked = self.options.model_dump(include={"window", "chat", "seed"})
        return {c: prepare_all(self.model, own.texts, own.language, **asked) for c, own in texts.by_language.items()}

    def _key(self, *texts: Texts) -> str:
        asked = self.options.model_dump(exclude={"served_bound"})
        prints = [own.fingerprint for own in texts]
        return key_of(self.model.folder.fingerprint, prints, asked, self.model.device.type)

    @cached_property
    def _split_key(self) -> str:
        return self._key(self.split.calibration, self.split.validation, self.split.test)

    @cached_property
    def _twin(self) -> LanguageModel:
        return copy_of(self.model)
