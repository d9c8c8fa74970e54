"""Options of the main commands: run, plan, quantize, evaluate, compare, check, card, rating-sheet, ratings."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, model_validator

from laaciq.errors import BadOption
from laaciq.options.base import Condition, Only, Options
from laaciq.options.groups import (
    GridOptions,
    LeftAloneOptions,
    MeasuredModelOptions,
    MeasureOptions,
    PassageOptions,
    SizeOptions,
    TextOptions,
)
from laaciq.options.methods import find_method
from laaciq.options.values import MOST_SEED, Languages, Source
from laaciq.options.weights import (
    METHOD_HELP,
    READS_NO_TEXT,
    CalibrationOptions,
    PlanningOptions,
    WeightOptions,
    reads_text,
)


class QuantizeOptions(WeightOptions, LeftAloneOptions, MeasuredModelOptions):
    """Options of `laaciq quantize`."""

    verb: ClassVar[str] = "quantize"
    bounds_memory: ClassVar[bool] = True
    conditions: ClassVar[tuple[Condition, ...]] = (
        Only(frozenset({*TextOptions.model_fields, *MeasureOptions.model_fields}), reads_text, READS_NO_TEXT),
        Only(
            frozenset({"served_bound"}),
            lambda options: options.plan is None,
            "has no effect beside --plan, whose file names the languages",
        ),
    )

    method: str = Field(default="planned", description=METHOD_HELP)

    def quantizing(self) -> WeightOptions:
        """The part of the options that decides the weights."""
        return self.group(WeightOptions)


class RunOptions(PassageOptions, WeightOptions, LeftAloneOptions, MeasuredModelOptions):
    """Options of `laaciq run`."""

    verb: ClassVar[str] = "run"
    bounds_memory: ClassVar[bool] = True
    shares_work: ClassVar[bool] = True
    conditions: ClassVar[tuple[Condition, ...]] = (
        Only(
            frozenset({"baseline"}),
            lambda options: options.plan is None and find_method(options.method).planned,
            "has no effect here: a baseline is measured only with method 'planned' and without --plan",
        ),
        Only(frozenset({"draws"}), reads_text, READS_NO_TEXT),
        Only(frozenset({"prompts"}), lambda options: options.generate, "has no effect without --generate"),
    )

    method: str = Field(default="planned", description=METHOD_HELP)
    baseline: bool = Field(
        default=True,
        description="With method 'planned', also measure the baseline at the same size: GPTQ calibrated on English.",
    )
    draws: int = Field(
        default=1,
        ge=1,
        description="Number of plans and checkpoints, each from another division into calibration and validation text. "
        "With 2 or more, the report shows the spread of their losses.",
    )
    generate: bool = Field(
        default=False,
        description="Also compare greedy continuations of test passages: their language, garbled text, repetition. 'laaciq rating-sheet' "
        "has people judge them.",
    )
    prompts: int | None = Field(
        default=None,
        ge=1,
        description="Prompts per language for --generate, at most one per passage. Default: 100 on a GPU, 16 on a CPU.",
    )
    numeric_check: bool = Field(
        default=False,
        description="Also compare the original with itself in another precision, which shows the numeric noise.",
    )

    def quantizing(self) -> WeightOptions:
        """The part of the options that decides the weights."""
        return self.group(WeightOptions)

    def folder_words(self) -> tuple[list[str], frozenset[str]]:
        if self.plan is not None:
            return [self.verb], frozenset()
        if self.budget is not None:
            return [self.method, f"{self.budget:g}bit"], frozenset({"method", "budget"})
        grid = f"g{self.group_size}" if isinstance(self.group_size, int) else self.group_size
        words = [self.method, f"{self.bits}bit", grid, *([] if self.symmetric else ["affine"])]
        return words, frozenset(GridOptions.model_fields) | {"method"}


class PlanOptions(PlanningOptions, CalibrationOptions, SizeOptions, LeftAloneOptions, MeasuredModelOptions):
    """Options of `laaciq plan`: those that method 'planned' reads."""

    verb: ClassVar[str] = "plan"
    bounds_memory: ClassVar[bool] = True

    def quantizing(self) -> WeightOptions:
        """The part of the options that decides the weights."""
        return WeightOptions(method="planned", **self.model_dump(include=set(WeightOptions.model_fields)))


class EvaluateOptions(PassageOptions, MeasureOptions, TextOptions):
    """Options of `laaciq evaluate`."""

    verb: ClassVar[str] = "evaluate"
    bounds_memory: ClassVar[bool] = True
    positional: ClassVar[tuple[str, ...]] = ("checkpoint",)

    checkpoint: Source = Field(
        description="Quantized model: a checkpoint of laaciq, GPTQ, AWQ, bitsandbytes or compressed-tensors, or a GGUF file."
    )
    against: Source = Field(description="Original model that the checkpoint was made from.")

    def measuring(self) -> MeasureOptions:
        """The part of the options that decides a measurement."""
        return self.group(MeasureOptions)


class CompareOptions(PassageOptions, LeftAloneOptions, MeasuredModelOptions):
    """Options of `laaciq compare`. Methods add rows to one folder, so they are not part of its name."""

    verb: ClassVar[str] = "compare"
    bounds_memory: ClassVar[bool] = True
    shares_work: ClassVar[bool] = True
    undecisive: ClassVar[frozenset[str]] = LeftAloneOptions.undecisive | {"methods"}

    methods: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Methods to compare, for example 'gptq,nf4,planned@4.125', where @4.125 sets bits per weight. 'laaciq methods' and "
        "'laaciq backends' list them. Default: all back ends, planned and gptq.",
    )
    bits: int = Field(
        default=4,
        ge=1,
        le=8,
        description="Bits per code for every method. If a method does not support them, its row shows the reason.",
    )
    calibration: str = Field(
        default="all",
        min_length=1,
        description="Calibration text for every method: a language such as 'eng', 'all' languages, or a folder or file of texts.",
    )
    calibration_passages: int | None = Field(
        default=None,
        ge=1,
        description="Use at most this many calibration passages per language, and as many for validation. Default: all.",
    )
    passages: int | None = Field(
        default=None, ge=2, description="Measure at most this many passages per language. Default: all."
    )


class CheckOptions(Options):
    """Options of `laaciq check`."""

    verb: ClassVar[str] = "check"
    positional: ClassVar[tuple[str, ...]] = ("run",)

    run: Source = Field(description="Folder of a finished 'laaciq run', or an evaluation.json.")
    max_degradation: float | None = Field(
        default=None, ge=0, description="Largest allowed D of a language, as a fraction: 0.05 is 5 %."
    )
    max_disparity: float | None = Field(
        default=None,
        ge=0,
        description="Largest allowed disparity, max D − min D, as a fraction: 0.03 is 3 percentage points.",
    )
    strict: bool = Field(
        default=False,
        description="Judge by the upper end of the 95 % interval, not by the estimate: pass only what is shown to hold.",
    )
    lenient: bool = Field(
        default=False,
        description="Judge by the lower end of the 95 % interval, not by the estimate: fail only what is shown to fail.",
    )

    @model_validator(mode="after")
    def _judgeable(self) -> Self:
        if self.max_degradation is None and self.max_disparity is None:
            raise BadOption("nothing to check: give --max-D, --max-disparity or both")
        if self.strict and self.lenient:
            raise BadOption(
                "--strict judges by the upper end of the interval and --lenient by the lower end: give one of them"
            )
        return self


class CardOptions(Options):
    """Options of `laaciq card`."""

    verb: ClassVar[str] = "card"
    positional: ClassVar[tuple[str, ...]] = ("run",)

    run: Source = Field(description="Folder of a finished 'laaciq run'.")
    base_model: str | None = Field(
        default=None,
        min_length=1,
        description="Hub name of the original model. Default: the name that the run loaded from the hub, if any.",
    )
    name: str | None = Field(default=None, min_length=1, description="Name of the quantized model, such as org/name.")
    license: str | None = Field(
        default=None,
        min_length=1,
        description="License, such as apache-2.0. Default: the license in the original's card.",
    )


class RatingSheetOptions(Options):
    """Options of `laaciq rating-sheet`."""

    verb: ClassVar[str] = "rating_sheet"
    positional: ClassVar[tuple[str, ...]] = ("run",)

    run: Source = Field(description="Folder of a finished 'laaciq run' with --generate.")
    languages: Languages | None = Field(
        default=None,
        description="Write only these languages, for example 'eng,swa'. Default: all languages of the run.",
    )
    pairs: int = Field(default=30, ge=1, description="Most pairs per language.")
    seed: int = Field(
        default=0, ge=0, le=MOST_SEED, description="Random seed for the choice, order and sides of pairs."
    )


class RatingsOptions(Options):
    """Options of `laaciq ratings`."""

    verb: ClassVar[str] = "ratings"
    positional: ClassVar[tuple[str, ...]] = ("files",)

    files: tuple[Source, ...] = Field(min_length=1, description="CSV files of answers, one per rater.")
    key: Source = Field(description="The key.json that was written with the sheets.")
