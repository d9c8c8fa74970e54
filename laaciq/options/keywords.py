"""The keyword arguments of every verb as types, so that editors complete and check `laaciq.run(bits=3, …)`.

Each holds the fields of the class of options of the same name and of the verb's settings, less the arguments that the verb spells out
itself. A test compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from laaciq.options.values import Cause, Effort, ExportRuntime, Objective, Runtime, SensitivityPart

if TYPE_CHECKING:
    from laaciq.engine.progress import Progress

_GroupSize = int | Literal["channel", "tensor"]


class _WriteKeywords(TypedDict, total=False):
    overwrite: bool
    device: str
    progress: Progress | None


class _SessionKeywords(_WriteKeywords, total=False):
    out: str | Path | None


class _StudyKeywords(_SessionKeywords, total=False):
    workers: int | None
    ray: str | None


class _BoundedKeywords(TypedDict, total=False):
    gpu_memory: str | None
    host_memory: str | None


class _TextsKeywords(TypedDict, total=False):
    texts: str | Path
    languages: Sequence[str] | None


class _ReadKeywords(_TextsKeywords, total=False):
    window: int | None
    chat: bool
    seed: int


class _MeasureKeywords(_ReadKeywords, total=False):
    served_bound: float
    dtype: Literal["auto", "float32", "bfloat16"]


class _LeftAloneKeywords(TypedDict, total=False):
    allow_left_alone: bool


class _GridKeywords(TypedDict, total=False):
    bits: int
    group_size: _GroupSize
    symmetric: bool


class _CalibrationKeywords(TypedDict, total=False):
    calibration_languages: Sequence[str] | None
    hold_out: Sequence[str] | None
    tune: int | None


class _PlanningKeywords(TypedDict, total=False):
    budget: float | None
    budget_for: Literal["blocks", "model"]
    objective: Objective
    language_weight: Sequence[str]
    effort: Effort
    runtime: Runtime


class PlanKeywords(
    _BoundedKeywords,
    _SessionKeywords,
    _MeasureKeywords,
    _LeftAloneKeywords,
    _CalibrationKeywords,
    _PlanningKeywords,
    total=False,
):
    bits: int
    group_size: _GroupSize


class _WeightKeywords(
    _MeasureKeywords, _LeftAloneKeywords, _CalibrationKeywords, _PlanningKeywords, _GridKeywords, total=False
):
    method: str
    plan: str | Path | None
    keep: float
    keep_by: Literal["magnitude", "saliency"]
    protect: Sequence[str]
    protect_bits: Literal[8, 16]
    outlier_bits: int | None
    outlier_kurtosis: float
    outlier_by: Literal["block", "component"]
    attention_bits: int | None
    embedding_bits: int | None
    rank: int
    table_overhead: float
    separate: bool


class QuantizeKeywords(_BoundedKeywords, _WriteKeywords, _WeightKeywords, total=False):
    pass


class RunKeywords(_BoundedKeywords, _StudyKeywords, _WeightKeywords, total=False):
    passages: int | None
    baseline: bool
    draws: int
    generate: bool
    prompts: int | None
    numeric_check: bool


class EvaluateKeywords(_BoundedKeywords, _SessionKeywords, _MeasureKeywords, total=False):
    passages: int | None


class CompareKeywords(_BoundedKeywords, _StudyKeywords, _MeasureKeywords, _LeftAloneKeywords, total=False):
    passages: int | None
    methods: Sequence[str] | None
    bits: int
    calibration: str
    calibration_passages: int | None


class SensitivityKeywords(
    _BoundedKeywords, _StudyKeywords, _MeasureKeywords, _LeftAloneKeywords, _GridKeywords, total=False
):
    passages: int | None
    part: SensitivityPart


class SweepKeywords(_BoundedKeywords, _StudyKeywords, _MeasureKeywords, _LeftAloneKeywords, total=False):
    passages: int | None
    bits: Sequence[int]
    group_size: _GroupSize
    symmetric: bool
    method: str
    tolerance: float


class GatewayKeywords(
    _BoundedKeywords, _StudyKeywords, _MeasureKeywords, _LeftAloneKeywords, _GridKeywords, total=False
):
    passages: int | None
    method: str
    protect: int


class MixtureKeywords(
    _BoundedKeywords, _StudyKeywords, _MeasureKeywords, _LeftAloneKeywords, _GridKeywords, total=False
):
    passages: int | None
    single_language: str
    rounds: int
    calibration_passages: Sequence[int]
    leave_out: Sequence[str] | None


class InterveneKeywords(
    _BoundedKeywords, _SessionKeywords, _MeasureKeywords, _LeftAloneKeywords, _GridKeywords, total=False
):
    passages: int | None
    do: Cause
    kurtosis: Sequence[float]
    blocks: Sequence[int] | None
    rates: Sequence[float]
    to_bits: int


class LabKeywords(_BoundedKeywords, _StudyKeywords, _MeasureKeywords, _LeftAloneKeywords, total=False):
    passages: int | None
    claims: Sequence[str] | None
    quick: bool


class ProfileKeywords(_BoundedKeywords, _SessionKeywords, _ReadKeywords, total=False):
    passages: int | None
    predictive: bool
    outlier_kurtosis: float


class ScreenKeywords(_ReadKeywords, total=False):
    passages: int | None
    bits: int
    outlier_kurtosis: float


class SurveyKeywords(_ReadKeywords, total=False):
    passages: int | None
    bits: int


class ExportKeywords(_WriteKeywords, _MeasureKeywords, total=False):
    passages: int
    runtime: ExportRuntime | None
    against: str | Path | None
    fold: bool


class ImatrixKeywords(_BoundedKeywords, _WriteKeywords, _MeasureKeywords, total=False):
    plan: str | Path | None


class BenchKeywords(TypedDict, total=False):
    against: str | Path | None
    dtype: Literal["auto", "float32", "bfloat16", "float16"]
    prompt_tokens: int
    new_tokens: int
    batch: int
    decoding: Literal["auto", "eager", "compiled", "both"]


class CheckKeywords(TypedDict, total=False):
    max_degradation: float | None
    max_disparity: float | None
    strict: bool
    lenient: bool


class CardKeywords(TypedDict, total=False):
    base_model: str | None
    name: str | None
    license: str | None


class TasksKeywords(_TextsKeywords, total=False):
    seed: int


class TaskResultsKeywords(TypedDict, total=False):
    metric: str


class RatingSheetKeywords(TypedDict, total=False):
    languages: Sequence[str] | None
    pairs: int
    seed: int


class RatingsKeywords(TypedDict, total=False):
    pass
