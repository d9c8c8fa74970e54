"""The `Profile`: what is in a model's weights, and how each language uses them. Written to disk and read back without loss."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from laaciq.engine.display import Displayed
from laaciq.engine.files import write_text
from laaciq.engine.input_files import Refusal
from laaciq.engine.json_input import read_record
from laaciq.errors import BadOption
from laaciq.profiling.alignment import Alignment
from laaciq.profiling.redundancy import SpectralRedundancy
from laaciq.profiling.tokenization import Tokenization
from laaciq.profiling.weights import WeightStatistics
from laaciq.strict import StrictModel

if TYPE_CHECKING:
    import pandas

_PROFILE_AGAIN = Refusal(BadOption, "the profile is damaged or of another version; make it again with 'laaciq profile'")


def pack_floats(values: np.ndarray) -> str:
    return base64.b64encode(values.astype("<f4").tobytes()).decode()


def unpack_floats(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype="<f4")


class Architecture(StrictModel):
    """Facts to compare models by. `multimodal`: the language model has vision or other parts beside it."""

    model_type: str
    kind: str
    multimodal: bool = False
    parameters: int
    blocks: int
    width: int
    heads: int | None
    key_value_heads: int | None
    feed_forward: int | None
    activation: str | None
    norm: str
    norm_position: str
    positions: str
    vocabulary: int
    tied_embeddings: bool


class BlockWeights(StrictModel):
    """Weights of one block. `kurtosis` is κ_l, pooled over all linear weights; the mean and the maximum over its tensors are given too."""

    block: int
    name: str
    sigma: float
    kurtosis: float
    mean_tensor_kurtosis: float
    max_tensor_kurtosis: float
    outlier: bool


class ComponentWeights(StrictModel):
    """All weights of one component: attention, feed-forward, embeddings, head."""

    component: str
    count: int
    mean: float
    sigma: float
    kurtosis: float


class SuperWeight(StrictModel):
    """A super-weight candidate from one forward pass (Yu et al. 2024): large output `activation` from a large input at one down projection."""

    tensor: str
    row: int
    column: int
    weight: float
    input: float
    activation: float


class EffectiveWeights(StrictModel):
    """σ and κ of w ⊙ a(λ), the weights scaled by the language's inputs, for one tensor."""

    sigma: float
    kurtosis: float


class LanguageActivations(StrictModel):
    """How one language uses the blocks.

    `norms` is a_l(λ) = E‖h_l‖ over the text's tokens, without start tokens, padding and attention sinks; `fractions` is ā_l(λ) = a_l / Σ a_l.
    `outlier_fraction` is R̂(λ) = Σ ā_l over outlier blocks, `effective_kurtosis` κ_eff(λ) = Σ ā_l κ_l. `component_norms` is E‖output‖ of every
    linear layer, `input_moments` the mean square of each of its inputs (float32 in base64: as decimals
    they would fill 20 MB). `sink_share` is the share of positions that are attention sinks,
    `sink_norms` their mean norm by block (None where there are none). `spectral_redundancy` is the last block's;
    `predictive_redundancy` that of the profile's `predictive_blocks`, if requested. `routing` holds, for each mixture of experts by its path,
    the share of the language's tokens that goes to each expert; the shares sum to one.
    """

    language: str
    passages: int
    tokens: int
    bits_per_byte: float | None
    norms: list[float]
    fractions: list[float]
    outlier_fraction: float
    effective_kurtosis: float
    component_norms: dict[str, float]
    input_moments: dict[str, str]
    effective_weights: dict[str, EffectiveWeights]
    sink_share: float
    sink_norms: list[float] | None
    spectral_redundancy: SpectralRedundancy | None
    predictive_redundancy: float | None = None
    exposure_tokens: int | None
    routing: dict[str, list[float]] = Field(default_factory=dict)

    @field_validator("input_moments")
    @classmethod
    def _packed(cls, moments: dict[str, str]) -> dict[str, str]:
        for name, text in moments.items():
            try:
                whole = len(base64.b64decode(text, validate=True)) % 4 == 0
            except ValueError:
                whole = False
            if not whole:
                raise ValueError(f"{name} holds no 32-bit floats in base64")
        return moments

    def input_mean_squares(self, tensor: str) -> np.ndarray:
        """E[x_j²] of every input j of a linear layer."""
        return unpack_floats(self.input_moments[tensor])


class Profile(Displayed, StrictModel):
    """Everything that the theory measures before quantization. `sampled`: only some passages of each language were read."""

    version: Literal[1] = 1
    model: str
    texts: str
    parallel: bool
    sampled: bool = False
    outlier_kurtosis: float
    architecture: Architecture
    tensors: list[WeightStatistics]
    components: list[ComponentWeights]
    blocks: list[BlockWeights] = Field(min_length=1)
    super_weights: list[SuperWeight]
    predictive_blocks: list[int] | None = None
    languages: list[LanguageActivations] = Field(min_length=1)
    tokenization: list[Tokenization]
    alignment: list[Alignment]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        codes = [result.language for result in self.languages]
        if len(set(codes)) < len(codes):
            raise ValueError("a language is there twice")
        for result in self.languages:
            if not len(result.norms) == len(result.fractions) == len(self.blocks):
                raise ValueError(f"{result.language} has norms of {len(result.norms)} blocks of {len(self.blocks)}")
        return self

    def __getitem__(self, code: str) -> LanguageActivations:
        return next(result for result in self.languages if result.language == code)

    @property
    def max_kurtosis(self) -> float:
        return max(block.kurtosis for block in self.blocks)

    @property
    def outlier_blocks(self) -> list[int]:
        return [block.block for block in self.blocks if block.outlier]

    def write(self, path: Path) -> None:
        write_text(path, self.model_dump_json())

    @classmethod
    def read(cls, path: Path, *, within: Path | None = None) -> Profile:
        """The profile in a file; `within` is the folder that the file belongs to."""
        return read_record(path, cls, _PROFILE_AGAIN, within=within)

    def frame(self) -> pandas.DataFrame:
        """A pandas table with one row per language, without the long lists."""
        from laaciq.frames import flat_frame

        long = {"component_norms", "input_moments", "effective_weights", "routing"}
        return flat_frame([result.model_dump(exclude=long) for result in self.languages])
