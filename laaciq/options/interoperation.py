"""Options of the commands that work with other libraries: export, imatrix, bench, tasks, task-results."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from laaciq.options.base import Condition, Only, Options
from laaciq.options.groups import MeasuredModelOptions, MeasureOptions, PassageOptions, TextOptions
from laaciq.options.values import MOST_SEED, ExportFormatName, ExportRuntime, Source

_MEASURED = frozenset({*TextOptions.model_fields, *MeasureOptions.model_fields, *PassageOptions.model_fields})


class ExportOptions(PassageOptions, MeasureOptions, TextOptions):
    """Options of `laaciq export`. Only folding changes what a model computes, so only folding is measured."""

    verb: ClassVar[str] = "export"
    positional: ClassVar[tuple[str, ...]] = ("checkpoint",)
    conditions: ClassVar[tuple[Condition, ...]] = (
        Only(
            _MEASURED | {"against"},
            lambda options: options.fold,
            "has no effect without --fold: without it the export computes the same and is not measured",
        ),
    )

    checkpoint: Source = Field(description="Checkpoint folder written by 'laaciq quantize' or 'laaciq run'.")
    format: ExportFormatName = Field(description="Format to write: compressed-tensors, gptq or gguf.")
    runtime: ExportRuntime | None = Field(
        default=None,
        description="Runtime that must load the export, or else it is refused: vllm (on GPUs), vllm-cpu or llama.cpp. Default: any.",
    )
    against: Source | None = Field(
        default=None, description="Original model; needed if --fold changes what the model computes."
    )
    fold: bool = Field(
        default=False,
        description="Convert what the format cannot hold: tensors to 16 bits, language tables to the scales that all languages share.",
    )
    passages: int = Field(default=12, ge=1, description="Passages per language to measure the effect of --fold on.")

    def measuring(self) -> MeasureOptions:
        """The part of the options that decides a measurement."""
        return self.group(MeasureOptions)


class SpeedOptions(Options):
    """The workload of both models."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="Data type of both models; auto is float32 on a CPU and bfloat16 on CUDA."
    )
    prompt_tokens: int = Field(default=128, ge=1, description="Tokens per prompt.")
    new_tokens: int = Field(default=64, ge=2, description="Tokens to generate per prompt.")
    batch: int = Field(default=1, ge=1, description="Prompts per batch.")
    decoding: Literal["auto", "eager", "compiled", "both"] = Field(
        default="auto",
        description="How tokens are generated: eager, or compiled (torch.compile, static cache). auto is both on CUDA and eager on a CPU, "
        "where compiling takes minutes.",
    )


class BenchOptions(SpeedOptions):
    """Options of `laaciq bench`."""

    verb: ClassVar[str] = "bench"
    positional: ClassVar[tuple[str, ...]] = ("checkpoint",)

    checkpoint: Source = Field(description="Quantized model.")
    against: Source | None = Field(
        default=None,
        description="Original model. Default: the model of the run that wrote the checkpoint.",
    )


class ImatrixOptions(MeasuredModelOptions):
    """Options of `laaciq imatrix`."""

    verb: ClassVar[str] = "imatrix"
    bounds_memory: ClassVar[bool] = True

    plan: Source | None = Field(
        default=None,
        description="Plan file written by 'laaciq plan', which weights languages and sets the type of every tensor. Default: equal weights.",
    )


class TasksOptions(TextOptions):
    """Options of `laaciq tasks`."""

    verb: ClassVar[str] = "tasks"

    seed: int = Field(default=0, ge=0, le=MOST_SEED, description="Random seed for the split, as in 'laaciq run'.")


class TaskResultsOptions(Options):
    """Options of `laaciq task-results`."""

    verb: ClassVar[str] = "task_results"
    positional: ClassVar[tuple[str, ...]] = ("original", "quantized")

    original: Source = Field(
        description="What lm-eval logged of the original with --log_samples --output_path: the folder, or one samples_*.jsonl."
    )
    quantized: Source = Field(description="What lm-eval logged of the quantized model on the same tasks.")
    metric: str = Field(
        default="acc",
        min_length=1,
        description="Metric to compare; it must be 1 for a right answer and 0 for a wrong one.",
    )
