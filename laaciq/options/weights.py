"""Everything that decides the quantized weights: a method or a plan file, its rules, its calibration text and its budget."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from laaciq.options.base import Condition, Only, Options
from laaciq.options.groups import GridOptions
from laaciq.options.methods import METHODS, find_method, readers
from laaciq.options.values import (
    FULL_BITS,
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

# Shared by all commands that take a method.
METHOD_HELP = "Quantization method; 'laaciq methods' lists them."


class PlanningOptions(Options):
    """The budget of a plan, its objective and the planning effort."""

    conditions: ClassVar[tuple[Condition, ...]] = (
        Only(
            frozenset({"bits", "group_size"}),
            lambda options: options.budget is None,
            "has no effect beside --budget, which sets the size: give one or the other",
        ),
        Only(
            frozenset({"language_weight"}),
            lambda options: options.objective == "mean",
            "has no effect without --objective mean",
        ),
    )

    budget: float | None = Field(
        default=None,
        gt=0,
        le=FULL_BITS,
        description="Size limit in bits per weight, scales included. Default: the size of a symmetric grid with --bits and --group-size.",
    )
    budget_for: Literal["blocks", "model"] = Field(
        default="blocks",
        description="What the plan quantizes and the budget counts: blocks (their linear layers), or model (also embeddings and output head).",
    )
    objective: Objective = Field(
        default="worst",
        description="What the plan minimises over the languages' losses: worst (the largest), worst-quarter (the mean of the worst quarter), "
        "worst-and-spread (2·max − min) or mean.",
    )
    language_weight: LanguageWeights = Field(
        default=(),
        description="Weight of a language under --objective mean, for example 'swa=3'; other languages weigh 1. Repeatable.",
    )
    effort: Effort = Field(
        default="fast",
        description="Planning effort: fast gives a first result; full tries more plans on more text.",
    )
    runtime: Runtime = Field(
        default="laaciq",
        description="Plan only what this runtime can load: laaciq (through transformers), vllm (on GPUs), vllm-cpu or llama.cpp, whose "
        "blocks the budget then counts.",
    )


class CalibrationOptions(Options):
    """The languages to calibrate on, and tuning."""

    calibration_languages: Languages | None = Field(
        default=None,
        description="Calibrate on these languages only, for example 'eng'. Default: all served languages.",
    )
    hold_out: Languages | None = Field(
        default=None,
        description="Measure these languages, but use none of their text for calibration or validation, for example 'swa,tam'. Default: none.",
    )
    tune: int | None = Field(
        default=None,
        ge=0,
        description="Epochs of tuning scales and norms to match the original's predictions. Default: 0; for 'planned', what --effort sets.",
    )


class MethodOptions(Options):
    """The quantization method, or a plan file in its place."""

    method: str = Field(default="rtn", description=METHOD_HELP)
    plan: Source | None = Field(
        default=None, description="Plan file written by 'laaciq plan', edited or not, to use instead of a method."
    )

    @field_validator("method")
    @classmethod
    def _known(cls, method: str) -> str:
        return find_method(method).name


class RuleOptions(Options):
    """Rules for tensors that get more bits and for weights that stay in 16 bits."""

    conditions: ClassVar[tuple[Condition, ...]] = (
        Only(frozenset({"keep_by"}), lambda options: options.keep > 0, "has no effect without --keep above 0"),
        Only(frozenset({"protect_bits"}), lambda options: bool(options.protect), "has no effect without --protect"),
        Only(
            frozenset({"outlier_kurtosis", "outlier_by"}),
            lambda options: options.outlier_bits is not None,
            "has no effect without --outlier-bits",
        ),
    )

    keep: KeptPercent = Field(default=0.0, description="Percentage of weights to keep in 16 bits, 0 to 10.")
    keep_by: Literal["magnitude", "saliency"] = Field(
        default="magnitude",
        description="How --keep ranks weights: by magnitude |w| or by saliency |w|·√E(x²).",
    )
    protect: Entries = Field(
        default=(),
        description="Blocks to store in --protect-bits, for example '0,11', or for some languages only 'swa+yor=3,4'. Repeatable.",
    )
    protect_bits: Literal[8, 16] = Field(default=16, description="Bits per weight of protected blocks: 8 or 16.")
    outlier_bits: Bits | None = Field(
        default=None,
        description="Bits per code of blocks with a kurtosis above --outlier-kurtosis. Default: --bits.",
    )
    outlier_kurtosis: float = Field(
        default=OUTLIER_KURTOSIS, description="Excess kurtosis κ above which --outlier-bits applies."
    )
    outlier_by: Literal["block", "component"] = Field(
        default="block",
        description="Compute κ per block, or per component: attention and feed-forward separately.",
    )
    attention_bits: Bits | None = Field(
        default=None, description="Minimum bits per code of attention projections. Default: no minimum."
    )
    embedding_bits: Bits | None = Field(
        default=None, description="Bits per code of embeddings and output head. Default: not quantized."
    )
    rank: int = Field(
        default=0, ge=0, description="Rank of a low-rank 16-bit correction of every quantized layer; 0 adds none."
    )
    table_overhead: float = Field(
        default=0.5, gt=0, le=FULL_BITS, description="Most bits per weight that language tables may add."
    )
    separate: bool = Field(
        default=False, description="Write one checkpoint per language, or per group of languages in --protect."
    )


class _NotInPlanFile:
    """A plan file decides everything that the other options of `WeightOptions` decide."""

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
        return f"has no effect with method {method.name!r}, only with {', '.join(reading)}"


_TEXT_READERS = ", ".join(method.name for method in METHODS.values() if method.reads_text)
READS_NO_TEXT = (
    f"has no effect here, because no text is read. Methods that read text: {_TEXT_READERS}; "
    "so do --tune, --separate and --keep-by saliency"
)


def reads_text(options: WeightOptions) -> bool:
    """True if calibration text affects the weights."""
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
            "cannot be combined with --separate: a held-out language would have no checkpoint",
        ),
    )

    @property
    def nominal_bits(self) -> int:
        """Whole bits per weight: those of the grid, or the budget rounded down."""
        return self.bits if self.budget is None else int(self.budget)
