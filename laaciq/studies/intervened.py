"""Candidates of interventions: the model with another κ at the same function, with small weights set to zero, with other bits in one part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from laaciq.engine.store import key_of
from laaciq.models import LanguageModel
from laaciq.options import GridOptions, WeightOptions
from laaciq.planning.rules import make_plans
from laaciq.quantization.grid import QuantizedMatrix
from laaciq.quantization.matrices import quantize_matrix
from laaciq.quantization.plan import Plan, TensorPlan
from laaciq.studies.blockwise_weights import BlockwiseWeights
from laaciq.studies.rescaling import Rescalable
from laaciq.trials.candidate import Portable, TextFreePlan
from laaciq.trials.quantized_copy import CandidateWeights, QuantizedCopy

# Powers of the rescaling by block.
Powers = tuple[tuple[int, float], ...]


def rounded_plan(model: LanguageModel, grid: GridOptions, *, embeddings: bool = False) -> Plan:
    """All linear layers of the blocks rounded to nearest, and the embeddings too if wanted."""
    options = WeightOptions(
        method="rtn",
        embedding_bits=grid.bits if embeddings else None,
        **grid.model_dump(include=set(GridOptions.model_fields)),
    )
    return make_plans(model.anatomy, options).first


def rounded(name: str, plan: Plan) -> TextFreePlan:
    return TextFreePlan(name, key_of("plan", plan.model_dump()), plan)


def with_bits(plan: Plan, tensors: Iterable[str], bits: int) -> Plan:
    """The plan with these tensors at other bits."""
    chosen = set(tensors)
    return plan.model_copy(
        update={"tensors": [t.model_copy(update={"bits": bits}) if t.name in chosen else t for t in plan.tensors]}
    )


@dataclass(frozen=True)
class Rescaled(Portable):
    """The original rescaled at the same function, then quantized by a plan that reads no text. Its parameters are rounded after that."""

    name: str
    powers: Powers
    plan: Plan

    @property
    def key(self) -> str:
        return key_of("rescaled", [[block, round(power, 6)] for block, power in self.powers], self.plan.model_dump())

    @contextmanager
    def applied(self, copy: QuantizedCopy, language: str) -> Iterator[LanguageModel]:
        yield copy.hold_weights(self.key, lambda: self._weights(copy.original))

    def _weights(self, original: LanguageModel) -> CandidateWeights:
        changed = Rescalable(original).parameters(dict(self.powers))
        linears = {linear.name for linear in original.anatomy.linears}
        norms = {name: changed[name] for name in changed if name not in linears}
        return CandidateWeights(self._layers(original, changed), norms)

    def _layers(
        self, original: LanguageModel, changed: Mapping[str, torch.Tensor]
    ) -> Iterator[tuple[TensorPlan, QuantizedMatrix]]:
        linears = {linear.name: linear for linear in original.anatomy.linears}
        for tensor in self.plan.in_blocks:
            if tensor.quantized:
                linear = linears[tensor.name]
                stored = changed.get(tensor.name)
                with original.present(linear.block):
                    matrix = linear.matrix if stored is None else stored.t() if linear.transposed else stored
                    yield tensor, quantize_matrix(matrix.to(original.device), tensor)


@dataclass(frozen=True)
class Pruned(Portable):
    """The `share` of each linear layer's weights that is smallest in magnitude set to zero, all others unchanged."""

    name: str
    share: float

    @property
    def key(self) -> str:
        return key_of("pruned", self.share)

    @contextmanager
    def applied(self, copy: QuantizedCopy, language: str) -> Iterator[LanguageModel]:
        yield copy.hold_weights(self.key, lambda: self._weights(copy.original))

    def _weights(self, original: LanguageModel) -> CandidateWeights:
        linears = original.anatomy.linears

        def pruned(block: int) -> dict[str, torch.Tensor]:
            with original.present(block):
                weights = {
                    linear.name: linear.module.get_parameter("weight") for linear in linears if linear.block == block
                }
                return {name: prune(parameter, self.share) for name, parameter in weights.items()}

        return CandidateWeights(
            (), BlockwiseWeights({linear.name: linear.block for linear in linears}, pruned), exact=True
        )


@torch.no_grad()
def prune(weights: torch.Tensor, share: float) -> torch.Tensor:
    """Weights with the smallest magnitudes set to zero: `share` of them, rounded down."""
    count = int(share * weights.numel())
    flat = weights.flatten().clone()
    if count:
        flat[flat.abs().topk(count, largest=False, sorted=False).indices] = 0
    return flat.reshape(weights.shape)
