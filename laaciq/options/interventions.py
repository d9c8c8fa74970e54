"""Options of `laaciq intervene`."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from laaciq.errors import BadOption
from laaciq.options.base import Condition, Only
from laaciq.options.groups import GridOptions, LeftAloneOptions, MeasuredModelOptions, PassageOptions
from laaciq.options.values import Bits, Cause


def _sets(cause: Cause) -> Callable[[InterveneOptions], bool]:
    return lambda options: options.do == cause


class InterveneOptions(GridOptions, PassageOptions, LeftAloneOptions, MeasuredModelOptions):
    """Options of `laaciq intervene`."""

    verb: ClassVar[str] = "intervene"
    bounds_memory: ClassVar[bool] = True
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
