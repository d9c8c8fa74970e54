"""The `Plan`: how every tensor of the blocks is stored, and embeddings and head if they are quantized too.

It is made before anything is quantized, and written with the checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field

from laaciq.errors import BadOption
from laaciq.options import BITS, FULL_BITS, Clip, GroupSize, KeptPercent, Rounding
from laaciq.strict import StrictModel

if TYPE_CHECKING:
    from laaciq.models import Anatomy

# Bits of a kept weight: its value and its column. Its row follows from a count by row.
_KEPT_BITS, _COUNT_BITS = FULL_BITS + 16, 32


def _storable(bits: int) -> int:
    if bits not in (*BITS, FULL_BITS):
        raise BadOption(f"{bits} bits are not supported: give one of {', '.join(map(str, BITS))} or {FULL_BITS}")
    return bits


class TensorPlan(StrictModel):
    """How one matrix of shape (outputs, inputs) is stored: `bits` per code, a scale per group of inputs, set by the rule `clip`, and codes
    by `rounding`.

    A matrix of 16 bits is not quantized. `keep` % of the weights, chosen by `keep_by`, stay in 16 bits. `tables` further sets of scales serve
    clusters of languages. `rank` is that of a correction in 16 bits. `used_by` names the modules of a token matrix (embeddings, and a head that
    is tied to them); it is empty for linear layers of blocks.
    """

    name: str
    shape: tuple[int, int]
    bits: Annotated[int, AfterValidator(_storable)]
    group_size: GroupSize
    symmetric: bool
    clip: Clip = "minmax"
    rounding: Rounding = "nearest"
    keep: KeptPercent = 0.0
    keep_by: Literal["magnitude", "saliency"] = "magnitude"
    tables: int = 0
    rank: int = 0
    used_by: tuple[str, ...] = ()

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
    """Complete size. `block_bits_per_weight` is over the linear layers of the blocks, `model_bits_per_weight` over everything."""

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
    weights: dict[str, float] = Field(default_factory=dict)
    tables: list[list[str]] = Field(default_factory=list)
    passages: int | None = None
    tuned: int = 0
    predicted: dict[str, float] = Field(default_factory=dict)

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

    plans: dict[str, Plan]

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
    block_weights = sum(tensor.weights for tensor in in_blocks)
    block_bits = sum(tensor.stored_bits for tensor in in_blocks)
    model_weights = anatomy.parameter_count()
    planned_bits = sum(tensor.stored_bits for tensor in tensors)
    model_bits = planned_bits + FULL_BITS * (model_weights - sum(tensor.weights for tensor in tensors))
    return Size(
        block_bytes=-(-block_bits // 8),
        block_bits_per_weight=block_bits / block_weights,
        model_bytes=-(-model_bits // 8),
        model_bits_per_weight=model_bits / model_weights,
        original_model_bytes=model_weights * FULL_BITS // 8,
        compression=model_weights * FULL_BITS / model_bits,
    )
