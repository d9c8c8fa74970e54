"""Everything that decides the quantized weights: a method or a plan file, its rules, its calibration text and its budget."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from laaciq.options.base import Condition, Only, Options
from laaciq.options.groups import GridOptions
from laaciq.options.methods import METHODS, find_method, readers
from laaciq.options.values import (
    OUTLIER_KURTOSIS,
    Bits,
    Effort,
    Entries,
    KeptPercent,
    Languages,
    LanguageWeights,
    Objective,
    Runtime,
    Source,
)


class PlanningOptions(Options):
    """The budget of a plan, what it minimises, and how long that may take."""

    conditions: ClassVar[tuple[Condition, ...]] = (
        Only(
            frozenset({"bits", "group_size"}),
            lambda options: options.budget is None,
            "has no effect beside --budget, which sets the size: give one or the other",
        ),
        Only(
            frozenset({"language_weight"}),
            lambda options: options.objective == "mean",
            "has no effect on the objective: only --objective mean weights languages",
        ),
    )

    budget: float | None = Field(
        default=None,
        gt=0,
        description="Size of a plan, in bits per weight; by default that of a symmetric grid of --bits and --group-size.",
    )
    budget_for: Literal["blocks", "model"] = Field(
        default="blocks",
        description="What a plan may quantize and the budget counts: linear layers of the blocks, or the whole model with embeddings and head.",
    )
    objective: Objective = Field(
        default="worst",
        description="What a plan minimises over languages: worst (the largest loss), worst-quarter (the mean of the worst quarter), "
        "worst-and-spread (2·max − min) or mean.",
    )
    language_weight: LanguageWeights = Field(
        default=(), description="Weight of a language in --objective mean: 'swa=3'. Repeatable; others count 1."
    )
    effort: Effort = Field(
        default="fast",
        description="How long planning may take: fast, for a first result, or full, which tries more plans on more text.",
    )
    runtime: Runtime = Field(
        default="laaciq", description="Plan only what this runtime loads: laaciq (through transformers) or vllm."
    )


class CalibrationOptions(Options):
    """The languages whose calibration text decides, and tuning on it."""

    calibration_languages: Languages | None = Field(
        default=None,
        description="Languages whose calibration text is read, for example 'eng'; all that are served by default.",
    )
    hold_out: Languages | None = Field(
        default=None,
        description="Languages that are measured but neither calibrate nor validate, for example 'swa,tam'; none by default.",
    )
    tune: int | None = Field(
        default=None,
        ge=0,
        description="Epochs of tuning scales and norms towards the original's predictions; by default 0, or with a plan what --effort sets.",
    )


class MethodOptions(Options):
    """How weights become codes."""

    method: str = Field(default="rtn", description="How weights become codes; 'laaciq methods' lists the methods.")
    plan: Source | None = Field(
        default=None, description="A file written by 'laaciq plan', perhaps edited, that is used in place of a method."
    )

    @field_validator("method")
    @classmethod
    def _known(cls, method: str) -> str:
        return find_method(method).name


class RuleOptions(Options):
    """Rules by which tensors get more bits, and weights stay in 16 bits."""

    conditions: ClassVar[tuple[Condition, ...]] = (
        Only(frozenset({"keep_by"}), lambda options: options.keep > 0, "has no effect without --keep above 0"),
        Only(frozenset({"protect_bits"}), lambda options: bool(options.protect), "has no effect without --protect"),
        Only(
            frozenset({"outlier_kurtosis", "outlier_by"}),
            lambda options: options.outlier_bits is not None,
            "has no effect without --outlier-bits",
        ),
    )

    keep: KeptPercent = Field(default=0.0, description="Percentage of weights that stay in 16 bits, 0 to 10.")
    keep_by: Literal["magnitude", "saliency"] = Field(
        default="magnitude",
        description="Which weights --keep keeps: the largest by magnitude |w| or by saliency |w|·√E(x²).",
    )
    protect: Entries = Field(
        default=(),
        description="Blocks that get --protect-bits: '0,11', or for some languages 'swa+yor=3,4'. Repeatable.",
    )
    protect_bits: Literal[8, 16] = Field(default=16, description="Bits of blocks under --protect: 8 or 16.")
    outlier_bits: Bits | None = Field(
        default=None,
        description="Bits of blocks whose kurtosis exceeds --outlier-kurtosis; like the others by default.",
    )
    outlier_kurtosis: float = Field(
        default=OUTLIER_KURTOSIS, description="Excess kurtosis κ above which --outlier-bits apply."
    )
    outlier_by: Literal["block", "component"] = Field(
        default="block",
        description="Weights that κ is pooled over: a whole block, or its attention and feed-forward apart.",
    )
    attention_bits: Bits | None = Field(
        default=None, description="Fewest bits of attention projections; like the others by default."
    )
    embedding_bits: Bits | None = Field(
        default=None, description="Bits of embeddings and head; they stay in 16 bits by default."
    )
    rank: int = Field(
        default=0, ge=0, description="Rank of a 16-bit correction added to every quantized layer; 0 adds none."
    )
    table_overhead: float = Field(
        default=0.5, gt=0, description="Most that language tables may cost, in bits per weight."
    )
    separate: bool = Field(
        default=False, description="Write a checkpoint per language, or per group of languages in --protect."
    )


class _NotInPlanFile:
    """A plan file holds everything that the other options of `WeightOptions` would decide."""

    def obstacle(self, options: WeightOptions, name: str) -> str | None:
        if options.plan is None or name == "plan" or name not in WeightOptions.model_fields:
            return None
        return "has no effect beside --plan, whose file says how every tensor is stored"


class _ReadByMethod:
    """An option of `WeightOptions` has an effect only if its method reads it."""

    def obstacle(self, options: WeightOptions, name: str) -> str | None:
        method = find_method(options.method)
        reading = readers(name)
        if not reading or name in method.reads:
            return None
        return f"has no effect with method {method.name!r}: it is read by {', '.join(reading)}"


_TEXT_READERS = ", ".join(method.name for method in METHODS.values() if method.reads_text)
READS_NO_TEXT = f"has no effect, as nothing here reads text: methods {_TEXT_READERS} do, and so do --tune, --separate and --keep-by saliency"


def reads_text(options: WeightOptions) -> bool:
    """Does calibration text decide anything?"""
    by_saliency = options.keep > 0 and options.keep_by == "saliency"
    by_rule = options.separate or by_saliency or bool(options.tune)
    return options.plan is not None or find_method(options.method).reads_text or by_rule


class WeightOptions(PlanningOptions, CalibrationOptions, RuleOptions, GridOptions, MethodOptions):
    """Everything that decides the quantized weights: a method, or a plan file, and the options that they read."""

    conditions: ClassVar[tuple[Condition, ...]] = (
        _NotInPlanFile(),
        _ReadByMethod(),
        Only(frozenset({"calibration_languages", "hold_out"}), reads_text, READS_NO_TEXT),
        Only(
            frozenset({"hold_out"}),
            lambda options: not options.separate,
            "cannot be combined with --separate: a language that is held out would have no checkpoint to be measured on",
        ),
    )

    @property
    def nominal_bits(self) -> int:
        """Bits per weight in whole numbers: of the grid, or as many as the budget allows."""
        return self.bits if self.budget is None else int(self.budget)
