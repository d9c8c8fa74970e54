"""Candidates: changed models to measure against the original. A candidate has a key, and can be applied to a copy of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import torch

from laaciq.engine.store import key_of
from laaciq.errors import BadOption
from laaciq.models import LanguageModel, LinearLayer
from laaciq.options import GridOptions
from laaciq.quantization.checkpoint import check_checkpoint, read_layers, read_plan
from laaciq.quantization.grid import Layers, QuantizedMatrix
from laaciq.quantization.matrices import quantize_matrix
from laaciq.quantization.model import Quantized, quantize_layers
from laaciq.quantization.plan import Plan, PlanSet, TensorPlan
from laaciq.quantization.switch import for_language
from laaciq.trials.quantized_copy import CandidateWeights, QuantizedCopy


class Candidate(Protocol):
    """`name` begins the names of its measurement files. `key` identifies everything that decides its weights: equal keys mean equal weights."""

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> str: ...

    def applied(self, copy: QuantizedCopy, language: str) -> AbstractContextManager[LanguageModel]:
        """Context manager: a model with the candidate's weights for the language. It may use and change `copy`."""


class Portable:
    """A candidate that can be sent to a worker: it holds names, plans and paths, no models. Others are measured where they were made."""


@dataclass(frozen=True)
class LoadedModel:
    """A separately loaded model: a checkpoint of any library, or the original in another precision."""

    name: str
    key: str
    model: LanguageModel

    @contextmanager
    def applied(self, copy: QuantizedCopy, language: str) -> Iterator[LanguageModel]:
        with for_language(self.model, language):
            yield self.model


@dataclass(frozen=True)
class Checkpoints(Portable):
    """Checkpoints on disk under `root`, an absolute path. Each language is measured on the checkpoint that serves it, with its table of
    scales."""

    name: str
    key: str
    plans: PlanSet
    root: Path

    @contextmanager
    def applied(self, copy: QuantizedCopy, language: str) -> Iterator[LanguageModel]:
        serving = self.plans.serving(language)
        table = self.plans.plans[serving].table_of(language)
        folder = self.plans.folders(self.root)[serving]

        def weights() -> CandidateWeights:
            plan = read_plan(folder)
            check_checkpoint(folder, plan, copy.original.anatomy)
            return CandidateWeights(*read_layers(folder, plan, copy.original.device), table=table)

        yield copy.hold_weights((self.key, serving, table), weights)


@dataclass(frozen=True)
class InMemory:
    """A plan whose layers are computed on first use and never written. `quantize` returns layers and tuned parameters."""

    name: str
    key: str
    plan: Plan
    quantize: Callable[[], Quantized]

    @cached_property
    def quantized(self) -> tuple[Layers, Mapping[str, torch.Tensor]]:
        layers, others = self.quantize()
        return layers if isinstance(layers, Sequence) else list(layers), others

    @contextmanager
    def applied(self, copy: QuantizedCopy, language: str) -> Iterator[LanguageModel]:
        table = self.plan.table_of(language)
        yield copy.hold_weights((self.key, table), lambda: CandidateWeights(*self.quantized, table=table))


@dataclass(frozen=True)
class TextFreePlan(Portable):
    """A plan that reads no text: its layers are computed wherever it is applied, and never written."""

    name: str
    key: str
    plan: Plan

    @contextmanager
    def applied(self, copy: QuantizedCopy, language: str) -> Iterator[LanguageModel]:
        yield copy.hold_weights(self.key, lambda: CandidateWeights(quantize_layers(copy.original, self.plan)))


@dataclass(frozen=True)
class RoundedMatrices(Portable):
    """Some matrices of the model rounded to nearest, all others unchanged. `matrices` are parameter names of linear layers in blocks,
    embeddings or the head; tied matrices are one, under any of their names.
    """

    name: str
    matrices: frozenset[str]
    grid: GridOptions

    @property
    def key(self) -> str:
        return key_of("rounded matrices", sorted(self.matrices), self.grid.model_dump())

    @contextmanager
    def applied(self, copy: QuantizedCopy, language: str) -> Iterator[LanguageModel]:
        yield copy.hold_weights(self.key, lambda: self._weights(copy.original))

    def _weights(self, original: LanguageModel) -> CandidateWeights:
        known = named_matrices(original)
        if unknown := sorted(self.matrices - set(known)):
            raise BadOption(
                f"{original.folder.name} has no matrix {unknown[0]!r}: give weights of linear layers in blocks, embeddings or the head"
            )
        linears = {linear.name: linear for linear in original.anatomy.linears}
        # By storage, because every transposed view of a parameter is a new object. Tied ones have the name of the first.
        names = {known[name].data_ptr(): name for name in sorted(self.matrices)}
        first = {p.data_ptr(): name for name, p in original.module.named_parameters()}
        tables = {first[place]: known[name] for place, name in names.items() if name not in linears}
        others = {
            name: self._rounded(name, table).dequantize(self._plan(name, table)) for name, table in tables.items()
        }
        chosen = [linears[name] for name in names.values() if name in linears]
        return CandidateWeights(self._layers(original, chosen), others, exact=True)

    def _layers(
        self, original: LanguageModel, chosen: list[LinearLayer]
    ) -> Iterator[tuple[TensorPlan, QuantizedMatrix]]:
        for linear in chosen:
            with original.present(linear.block):
                yield self._plan(linear.name, linear.matrix), self._rounded(linear.name, linear.matrix)

    def _plan(self, name: str, matrix: torch.Tensor) -> TensorPlan:
        rows, columns = matrix.shape
        return TensorPlan(name=name, shape=(rows, columns), **self.grid.model_dump())

    def _rounded(self, name: str, matrix: torch.Tensor) -> QuantizedMatrix:
        return quantize_matrix(matrix, self._plan(name, matrix))


def named_matrices(model: LanguageModel) -> dict[str, torch.Tensor]:
    """Linear layers of blocks, embeddings and head as (outputs, inputs), by parameter name; tied ones under each of their names."""
    tables = {part.name for part in model.anatomy.tensors if part.role in ("embedding", "head")}
    linears = {linear.name: linear.matrix for linear in model.anatomy.linears}
    parameters = dict(model.module.named_parameters(remove_duplicate=False))
    stored = {parameters[name].data_ptr() for name in tables}
    return linears | {name: p for name, p in parameters.items() if p.ndim == 2 and p.data_ptr() in stored}
