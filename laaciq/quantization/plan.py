"""The `Plan`: how every tensor of the blocks is stored, and embeddings and head if they are quantized too.

It is made before anything is quantized, and written with the checkpoint.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from laaciq.errors import BadOption
from laaciq.options import BITS, FULL_BITS, Clip, GroupSize, KeptPercent, Rounding
from laaciq.options.values import CLIPS_READING_TEXT
from laaciq.strict import StrictModel

if TYPE_CHECKING:
    from laaciq.models import Anatomy

# Bits of a kept weight: its value and its column. Its row follows from a count by row.
_KEPT_BITS, _COUNT_BITS = FULL_BITS + 16, 32


def _storable(bits: int) -> int:
    if bits not in (*BITS, FULL_BITS):
        raise BadOption(f"{bits} bits are not supported: give one of {', '.join(map(str, BITS))} or {FULL_BITS}")
    return bits


# No side of a matrix is longer: a vocabulary has fewer tokens.
_Side = Annotated[int, Field(ge=1, lt=2**31)]
_Count = Annotated[int, Field(ge=0, lt=2**31)]


class TensorPlan(StrictModel):
    """How one matrix of shape (outputs, inputs) is stored: `bits` per code, a scale per group of inputs, set by the rule `clip`, and codes
    by `rounding`.

    A matrix of 16 bits is not quantized. `keep` % of the weights, chosen by `keep_by`, stay in 16 bits. `tables` further sets of scales serve
    clusters of languages. `rank` is that of a correction in 16 bits. `used_by` names the modules of a token matrix (embeddings, and a head that
    is tied to them); it is empty for linear layers of blocks.
    """

    name: str = Field(min_length=1)
    shape: tuple[_Side, _Side]
    bits: Annotated[int, AfterValidator(_storable)]
    group_size: GroupSize
    symmetric: bool
    clip: Clip = "minmax"
    rounding: Rounding = "nearest"
    keep: KeptPercent = 0.0
    keep_by: Literal["magnitude", "saliency"] = "magnitude"
    tables: _Count = 0
    rank: _Count = 0
    used_by: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.rank > min(self.shape):
            raise ValueError(f"rank {self.rank} is more than a matrix of shape {self.shape} can have")
        if self.tables and (self.used_by or not self.quantized):
            raise ValueError(f"{self.name} has tables of scales, which only quantized layers of blocks have")
        return self

    @property
    def quantized(self) -> bool:
        return self.bits < FULL_BITS

    @property
    def weights(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def kept(self) -> int:
        """Number of weights that are kept."""
        return round(self.keep / 100 * self.weights) if self.quantized else 0

    @property
    def group_inputs(self) -> int:
        """Inputs that share a scale; the last group of a row may be smaller."""
        return self.shape[1] if isinstance(self.group_size, str) else min(self.group_size, self.shape[1])

    @property
    def grid_shape(self) -> tuple[int, int]:
        """Shape of scales and zero points: (outputs, groups per row), or one for all."""
        return (1, 1) if self.group_size == "tensor" else (self.shape[0], -(-self.shape[1] // self.group_inputs))

    @property
    def groups(self) -> int:
        return self.grid_shape[0] * self.grid_shape[1]

    @property
    def stored_bits(self) -> int:
        """Size in bits: codes, scales, zero points of an affine grid, tables, kept weights with their positions, and the low-rank
        correction.
        """
        if not self.quantized:
            return self.weights * FULL_BITS
        grid = self.groups * (FULL_BITS * (1 + self.tables) + (0 if self.symmetric else self.bits))
        kept = self.kept * _KEPT_BITS + self.shape[0] * _COUNT_BITS if self.kept else 0
        low_rank = FULL_BITS * self.rank * sum(self.shape)
        return self.weights * self.bits + grid + kept + low_rank


class Size(StrictModel):
    """Complete size. `block_bits_per_weight` is over the weights of the blocks, also those that are not quantized, but without vectors such
    as norms and biases; `model_bits_per_weight` is over everything.
    """

    block_bytes: int
    block_bits_per_weight: float
    model_bytes: int
    model_bits_per_weight: float
    original_model_bytes: int
    compression: float


class Plan(StrictModel):
    """`weights` say how much each language's calibration text counts; they sum to one, and are empty if no text is read. `tables` are the
    clusters of languages that have separate scales. `passages` bounds the calibration passages per language that second-order rounding and
    tuning read. `tuned` is the number of epochs in which scales, norms and biases are tuned towards the original's predictions.
    `predicted` is the expected loss of each language, ΔNLL in nats per token, if it was computed."""

    version: Literal[3] = 3
    method: str
    tensors: list[TensorPlan]
    size: Size
    weights: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    tables: list[Annotated[list[str], Field(min_length=1)]] = Field(default_factory=list)
    passages: Annotated[int, Field(ge=1)] | None = None
    tuned: _Count = 0
    predicted: dict[str, float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if twice := [name for name, count in Counter(tensor.name for tensor in self.tensors).items() if count > 1]:
            raise ValueError(f"{twice[0]} is planned twice")
        if self.weights and not 0 < sum(self.weights.values()) < math.inf:
            raise ValueError("the weights of all languages are zero")
        served = [code for members in self.tables for code in members]
        if len(set(served)) < len(served) or not self.weights.keys() >= set(served):
            raise ValueError("tables must name languages that have weights, each of them once")
        for tensor in self.in_blocks:
            if tensor.quantized and tensor.tables != len(self.tables):
                raise ValueError(f"{tensor.name} has {tensor.tables} tables of scales, and the plan {len(self.tables)}")
        return self

    @property
    def reads_text(self) -> bool:
        """Does calibration text decide any code?"""
        coded = [tensor for tensor in self.tensors if tensor.quantized and not tensor.used_by]
        return bool(self.tuned or self.tables) or any(
            t.clip in CLIPS_READING_TEXT or t.rounding != "nearest" or (t.kept and t.keep_by == "saliency")
            for t in coded
        )

    @property
    def languages(self) -> list[str]:
        """The languages whose calibration text is read."""
        return list(self.weights)

    @property
    def in_blocks(self) -> list[TensorPlan]:
        return [tensor for tensor in self.tensors if not tensor.used_by]

    @property
    def token_matrices(self) -> list[TensorPlan]:
        return [tensor for tensor in self.tensors if tensor.used_by]

    def __getitem__(self, name: str) -> TensorPlan:
        return next(tensor for tensor in self.tensors if tensor.name == name)

    def table_of(self, language: str) -> int | None:
        """Index of the language's table; None if it has none and uses the shared scales."""
        return next((index for index, members in enumerate(self.tables) if language in members), None)


class PlanSet(StrictModel):
    """The plans of one quantization by name: one under the empty name, or one per group of languages that has a separate checkpoint."""

    plans: dict[str, Plan] = Field(min_length=1)

    @model_validator(mode="after")
    def _named(self) -> Self:
        # A name is that of a folder inside another one.
        for name in self.plans:
            if name in (".", "..") or "/" in name or "\0" in name:
                raise ValueError(f"{name!r} is no name of a checkpoint")
        return self

    @property
    def first(self) -> Plan:
        return next(iter(self.plans.values()))

    @property
    def total_bytes(self) -> int:
        """Bytes of all checkpoints together."""
        return sum(plan.size.model_bytes for plan in self.plans.values())

    def serves(self, language: str) -> bool:
        return "" in self.plans or any(language in plan.languages for plan in self.plans.values())

    def serving(self, language: str) -> str:
        """Name of the plan whose checkpoint serves the language."""
        if not self.serves(language):
            raise BadOption(f"no checkpoint serves {language}: there are checkpoints for {', '.join(self.plans)}")
        return "" if "" in self.plans else next(n for n, plan in self.plans.items() if language in plan.languages)

    def folders(self, root: Path) -> dict[str, Path]:
        """Folders of the checkpoints: `root` itself, or one inside it per name."""
        return {name: root / name if name else root for name in self.plans}


def count_size(tensors: list[TensorPlan], anatomy: Anatomy) -> Size:
    in_blocks = [tensor for tensor in tensors if not tensor.used_by]
    left_alone = sum(part.count for part in anatomy.left_in_blocks)
    block_bits = sum(tensor.stored_bits for tensor in in_blocks) + FULL_BITS * left_alone
    model_weights = anatomy.parameter_count()
    planned_bits = sum(tensor.stored_bits for tensor in tensors)
    others = FULL_BITS * (model_weights - sum(tensor.weights for tensor in tensors))
    model_bits = planned_bits + others + anatomy.buffer_bits
    return Size(
        block_bytes=-(-block_bits // 8),
        block_bits_per_weight=block_bits / (sum(tensor.weights for tensor in in_blocks) + left_alone),
        model_bytes=-(-model_bits // 8),
        model_bits_per_weight=model_bits / model_weights,
        original_model_bytes=model_weights * FULL_BITS // 8,
        compression=model_weights * FULL_BITS / model_bits,
    )
