"""Options of the studies: sensitivity, sweep, gateway, mixture, intervene."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from laaciq.errors import BadOption
from laaciq.options.base import Condition, Only
from laaciq.options.groups import GridOptions, LeftAloneOptions, MeasuredModelOptions, PassageOptions, ScaleOptions
from laaciq.options.methods import METHODS, find_method
from laaciq.options.values import USUAL_BITS, Bits, Cause, Languages, SensitivityPart


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
    shares_work: ClassVar[bool] = True

    method: TextFreeMethod = Field(default="rtn", description=_TEXT_FREE)
    protect: int = Field(default=3, ge=1, description="Number of blocks to keep in 16 bits.")


class MixtureOptions(GridOptions, PassageOptions, LeftAloneOptions, MeasuredModelOptions):
    """Options of `laaciq mixture`."""

    verb: ClassVar[str] = "mixture"
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


def _sets(cause: Cause) -> Callable[[InterveneOptions], bool]:
    return lambda options: options.do == cause


class InterveneOptions(GridOptions, PassageOptions, LeftAloneOptions, MeasuredModelOptions):
    """Options of `laaciq intervene`."""

    verb: ClassVar[str] = "intervene"
    conditions: ClassVar[tuple[Condition, ...]] = (
        Only(frozenset({"kurtosis", "blocks"}), _sets("kurtosis"), "has an effect only with --do kurtosis"),
        Only(frozenset({"rates"}), _sets("tokens"), "has an effect only with --do tokens"),
        Only(frozenset({"to_bits"}), _sets("bits"), "has an effect only with --do bits"),
    )

    do: Cause = Field(
        default="kurtosis",
        description="What to set, all else equal: the kurtosis of blocks at the same function, the number of tokens of the same text, "
        "the bits of one part at a time, or pruning instead of quantization.",
    )
    kurtosis: tuple[float, ...] = Field(
        default=(10.0, 100.0),
        description="With --do kurtosis, values of κ for the blocks, for example '10,100'. The smallest possible one is always tried too.",
    )
    blocks: tuple[int, ...] | None = Field(
        default=None, description="With --do kurtosis, the blocks that change, for example '0,5'. Default: all."
    )
    rates: tuple[float, ...] = Field(
        default=(0.1, 0.3, 1.0),
        description="With --do tokens, probabilities with which a token is split into shorter ones, for example '0.1,1'.",
    )
    to_bits: Bits = Field(
        default=8, description="With --do bits, the bits of one block or component, while all others have --bits."
    )

    @field_validator("kurtosis", "blocks", "rates")
    @classmethod
    def _some_values(cls, values: tuple[float, ...] | None, field: ValidationInfo) -> tuple[float, ...] | None:
        if values is not None and not values:
            raise BadOption(f"--{field.field_name} is empty: give one or more numbers with commas between")
        return None if values is None else tuple(dict.fromkeys(values))

    @field_validator("rates")
    @classmethod
    def _probabilities(cls, rates: tuple[float, ...]) -> tuple[float, ...]:
        if wrong := [rate for rate in rates if not 0 < rate <= 1]:
            raise BadOption(f"--rates {wrong[0]:g} is no probability above 0: give for example 0.1,0.3,1")
        return rates

    @model_validator(mode="after")
    def _other_bits(self) -> Self:
        if self.do == "bits" and self.to_bits == self.bits:
            raise BadOption(f"--to-bits {self.to_bits} is what all parts have already: give other bits than --bits")
        return self

    def folder_words(self) -> tuple[list[str], frozenset[str]]:
        return [self.verb, self.do], frozenset({"do"})
