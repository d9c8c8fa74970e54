"""Options of the studies: sensitivity, sweep, gateway, mixture."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, field_validator

from laaciq.errors import BadOption
from laaciq.options.groups import GridOptions, MeasuredModelOptions, PassageOptions, ScaleOptions
from laaciq.options.methods import METHODS, find_method
from laaciq.options.values import BITS, Bits, Languages, SensitivityPart


class SensitivityOptions(GridOptions, PassageOptions, MeasuredModelOptions):
    """Options of `laaciq sensitivity`."""

    verb: ClassVar[str] = "sensitivity"

    part: SensitivityPart = Field(
        default="calibration",
        description="SensitivityPart of the texts to measure on: calibration, so that bits may be chosen from the result, or test.",
    )


def _reads_no_text(name: str) -> str:
    method = find_method(name)
    if method.reads_text:
        others = ", ".join(other.name for other in METHODS.values() if not other.reads_text)
        raise BadOption(
            f"method {name!r} reads calibration text, which this study would read again for every plan: give one of {others}"
        )
    return method.name


# A method for studies that quantize a model many times.
TextFreeMethod = Annotated[str, AfterValidator(_reads_no_text)]
_TEXT_FREE = "How weights become codes: a method that reads no text, rtn, mse or aciq."


class SweepOptions(ScaleOptions, PassageOptions, MeasuredModelOptions):
    """Options of `laaciq sweep`."""

    verb: ClassVar[str] = "sweep"

    bits: tuple[Bits, ...] = Field(default=BITS, description="Bits per code to try, for example '3,4'.")
    method: TextFreeMethod = Field(default="rtn", description=_TEXT_FREE)
    tolerance: float = Field(
        default=0.05, ge=0, description="Loss D that a language tolerates, as a fraction: 0.05 is 5 %."
    )

    @field_validator("bits")
    @classmethod
    def _ascending(cls, bits: tuple[int, ...]) -> tuple[int, ...]:
        if not bits:
            raise BadOption("--bits names no bits to sweep: give for example 2,3,4,6,8")
        return tuple(sorted(set(bits)))


class GatewayOptions(GridOptions, PassageOptions, MeasuredModelOptions):
    """Options of `laaciq gateway`."""

    verb: ClassVar[str] = "gateway"

    method: TextFreeMethod = Field(default="rtn", description=_TEXT_FREE)
    protect: int = Field(default=3, ge=1, description="Number of blocks that stay in 16 bits.")


class MixtureOptions(GridOptions, PassageOptions, MeasuredModelOptions):
    """Options of `laaciq mixture`."""

    verb: ClassVar[str] = "mixture"

    symmetric: bool = Field(
        default=False, description="Symmetric grid around zero; an affine grid stores a zero point per group."
    )
    single_language: str = Field(
        default="eng", min_length=1, description="Language of the mix that holds one language only."
    )
    rounds: int = Field(default=3, ge=0, description="Most rounds of minimax weights.")
    calibration_passages: tuple[int, ...] = Field(
        default=(1, 2, 5, 10),
        description="Calibration passages per language to try, for example '2,10'; all of them are tried too.",
    )
    leave_out: Languages | None = Field(
        default=None,
        description="Languages whose calibration text is left out, one at a time, for example 'swa,tam'; the worst two by default.",
    )
    passages: int | None = Field(
        default=None, ge=2, description="Most passages per language that are measured; all of the test text by default."
    )

    @field_validator("calibration_passages")
    @classmethod
    def _positive(cls, passages: tuple[int, ...]) -> tuple[int, ...]:
        if wrong := [number for number in passages if number < 1]:
            raise BadOption(f"--calibration-passages {wrong[0]} is no text to calibrate on: give 1 or more")
        return passages
