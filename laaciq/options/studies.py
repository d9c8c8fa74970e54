"""Options of the studies: sensitivity, sweep, gateway, mixture, lab."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, field_validator

from laaciq.errors import BadOption
from laaciq.options.groups import (
    GridOptions,
    LeftAloneOptions,
    MeasuredModelOptions,
    MeasureOptions,
    PassageOptions,
    ScaleOptions,
    TextOptions,
)
from laaciq.options.methods import METHODS, find_method
from laaciq.options.values import USUAL_BITS, Bits, Languages, SensitivityPart, Source


class SensitivityOptions(GridOptions, PassageOptions, LeftAloneOptions, MeasuredModelOptions):
    """Options of `laaciq sensitivity`."""

    verb: ClassVar[str] = "sensitivity"
    bounds_memory: ClassVar[bool] = True
    shares_work: ClassVar[bool] = True

    part: SensitivityPart = Field(
        default="calibration",
        description="Text to measure on: calibration, so that the result may be used to choose bits, or test.",
    )


def _reads_no_text(name: str) -> str:
    method = find_method(name)
    if method.reads_text:
        others = ", ".join(other.name for other in METHODS.values() if not other.reads_text)
        raise BadOption(
            f"method {name!r} reads calibration text, which this study would have to repeat for every plan: give one of {others}"
        )
    return method.name


# A method for studies that quantize a model many times.
TextFreeMethod = Annotated[str, AfterValidator(_reads_no_text)]
_TEXT_FREE = "Quantization method, one that needs no calibration text: rtn, mse or aciq."


class SweepOptions(ScaleOptions, PassageOptions, LeftAloneOptions, MeasuredModelOptions):
    """Options of `laaciq sweep`."""

    verb: ClassVar[str] = "sweep"
    bounds_memory: ClassVar[bool] = True
    shares_work: ClassVar[bool] = True

    bits: tuple[Bits, ...] = Field(default=USUAL_BITS, description="Bits per code to try, for example '3,4'.")
    method: TextFreeMethod = Field(default="rtn", description=_TEXT_FREE)
    tolerance: float = Field(
        default=0.05,
        ge=0,
        description="Acceptable D, as a fraction: 0.05 is 5 %. The table shows the fewest bits that meet it.",
    )

    @field_validator("bits")
    @classmethod
    def _ascending(cls, bits: tuple[int, ...]) -> tuple[int, ...]:
        if not bits:
            raise BadOption("--bits is empty: give for example 2,3,4,6,8")
        return tuple(sorted(set(bits)))


class GatewayOptions(GridOptions, PassageOptions, LeftAloneOptions, MeasuredModelOptions):
    """Options of `laaciq gateway`."""

    verb: ClassVar[str] = "gateway"
    bounds_memory: ClassVar[bool] = True
    shares_work: ClassVar[bool] = True

    method: TextFreeMethod = Field(default="rtn", description=_TEXT_FREE)
    protect: int = Field(default=3, ge=1, description="Number of blocks to keep in 16 bits.")


class MixtureOptions(GridOptions, PassageOptions, LeftAloneOptions, MeasuredModelOptions):
    """Options of `laaciq mixture`."""

    verb: ClassVar[str] = "mixture"
    bounds_memory: ClassVar[bool] = True
    shares_work: ClassVar[bool] = True

    symmetric: bool = Field(
        default=False, description="Symmetric grid around zero, or affine grid with a zero point per group."
    )
    single_language: str = Field(default="eng", min_length=1, description="Language of the single-language mix.")
    rounds: int = Field(default=3, ge=0, description="Most minimax rounds.")
    calibration_passages: tuple[int, ...] = Field(
        default=(1, 2, 5, 10),
        description="Numbers of calibration passages per language to try, for example '2,10'. All passages are always tried too.",
    )
    leave_out: Languages | None = Field(
        default=None,
        description="Languages to leave out of the calibration text, one at a time, for example 'swa,tam'. Default: the worst two.",
    )
    passages: int | None = Field(
        default=None, ge=2, description="Measure at most this many passages per language. Default: all."
    )

    @field_validator("calibration_passages")
    @classmethod
    def _positive(cls, passages: tuple[int, ...]) -> tuple[int, ...]:
        if not passages:
            raise BadOption("--calibration-passages names no numbers: give for example 2,10")
        if wrong := [number for number in passages if number < 1]:
            raise BadOption(f"--calibration-passages {wrong[0]} is too few: give 1 or more")
        return passages


class LabOptions(PassageOptions, LeftAloneOptions, MeasureOptions, TextOptions):
    """Options of `laaciq lab run`."""

    verb: ClassVar[str] = "run_lab"
    typed: ClassVar[str] = "lab run"
    bounds_memory: ClassVar[bool] = True
    positional: ClassVar[tuple[str, ...]] = ("models",)
    shares_work: ClassVar[bool] = True

    models: tuple[Source, ...] = Field(
        min_length=1,
        description="Models: folders or names on the hub; 'reference' is the embedded model, 'NAME+outliers' one with planted outliers. "
        "'reference-variants' are figures of models that were trained otherwise, and so is a .json file of recipes/measure_variants.py.",
    )
    claims: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Test only these claims, for example 'effective-kurtosis'; 'laaciq lab list' names them. Default: all claims.",
    )
    quick: bool = Field(
        default=False,
        description="Measure less text, and a sample of the sets of blocks: a first answer, with wider intervals.",
    )

    def measuring(self) -> MeasureOptions:
        """The part of the options that decides a measurement."""
        return self.group(MeasureOptions)

    def folder_words(self) -> tuple[list[str], frozenset[str]]:
        return ["lab", *(["quick"] if self.quick else [])], frozenset({"quick"})

    @property
    def _subject(self) -> str:
        return "+".join(Path(model).name for model in self.models)

    def _named_in_full(self) -> set[str]:
        return {"models"} if self._subject == "+".join(self.models) else set()
