"""Groups of options that several commands share: the model, its texts, how they are read, and the grid.

Fields are in the order of the bases from right to left. `--help` and `Options.command` use that order.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from laaciq.options.base import Options
from laaciq.options.values import BUILTIN, MOST_SEED, REFERENCE, Bits, GroupSize, Languages, Source


class ModelOptions(Options):
    """The model that a command works on."""

    positional: ClassVar[tuple[str, ...]] = ("model",)

    model: Source = Field(
        default=REFERENCE,
        description="Model: a folder, a .gguf file or a name on the hub; 'reference' is the embedded model.",
    )


class TextOptions(Options):
    """The texts, and which of their languages to use."""

    texts: Source = Field(
        default=BUILTIN,
        description="Texts by language: 'builtin', 'flores200', 'ntrex128', 'udhr', 'belebele', a folder, a .jsonl or .parquet file, "
        "or datasets:NAME.",
    )
    languages: Languages | None = Field(
        default=None,
        description="Use only these languages, for example 'eng,swa,Tamil'. Default: all languages in the texts; on the reference model "
        "the 36 that it is documented on.",
    )


class ReadOptions(Options):
    """How text is split and given to a model."""

    window: int | None = Field(
        default=None,
        ge=8,
        description="Most tokens per forward pass; longer passages are read in sliding windows. Default: what the model allows, up to 2048.",
    )
    chat: bool = Field(default=False, description="Wrap every passage in the model's chat template.")
    seed: int = Field(default=0, ge=0, le=MOST_SEED, description="Random seed for splits and resampling.")


class MeasureOptions(ReadOptions):
    """How text is given to a model, and which languages count as served."""

    served_bound: float = Field(
        default=4.0,
        gt=0,
        description="Most bits per byte that the original may need for a language to count as served. Other languages are listed, "
        "and left out of all else.",
    )
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto",
        description="Numbers that models compute in; auto is float32 on a CPU and the checkpoint's type on a GPU. bfloat16 is two to five "
        "times as fast on CPUs that have instructions for it, and adds a little noise to losses.",
    )


class PassageOptions(Options):
    """How much text is measured."""

    passages: int | None = Field(
        default=None, ge=1, description="Measure at most this many passages per language. Default: all."
    )


class MeasuredModelOptions(MeasureOptions, TextOptions, ModelOptions):
    """A model, and the texts that it is measured on."""

    def measuring(self) -> MeasureOptions:
        """The part of the options that decides a measurement."""
        return self.group(MeasureOptions)


class LeftAloneOptions(Options):
    """Weights that cannot be quantized. They do not affect the others."""

    undecisive: ClassVar[frozenset[str]] = frozenset({"allow_left_alone"})

    allow_left_alone: bool = Field(
        default=False,
        description="Go on even if more than 5 % of the blocks' weights stay in 16 bits, because they are not in linear layers.",
    )


class _BitsOption(Options):
    bits: Bits = Field(default=4, description="Bits per code: 2 to 8.")


class _GroupSizeOption(Options):
    group_size: GroupSize = Field(
        default=64,
        description="Weights that share a scale: a number within a row, 'channel' (a whole row) or 'tensor' (the whole matrix).",
    )


class _SymmetryOption(Options):
    symmetric: bool = Field(
        default=True, description="Symmetric grid around zero, or affine grid with a zero point per group."
    )


class SizeOptions(_GroupSizeOption, _BitsOption):
    """Bits per code, and how many weights share a scale."""


class ScaleOptions(_SymmetryOption, _GroupSizeOption):
    """A grid of any number of bits."""


class GridOptions(_SymmetryOption, _GroupSizeOption, _BitsOption):
    """The grid that weights are rounded to."""
