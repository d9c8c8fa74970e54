"""Options with their defaults and their help, in one place for Python and the command line.

Imports neither torch nor transformers, and nothing else of laaciq but its errors: help and completion on TAB must answer at once.
"""

from laaciq.options.base import Options, is_repeated
from laaciq.options.groups import GridOptions, MeasureOptions
from laaciq.options.inspection import ProfileOptions, ScreenOptions, SurveyOptions, is_profile
from laaciq.options.interoperation import (
    BenchOptions,
    ExportOptions,
    ImatrixOptions,
    SpeedOptions,
    TaskResultsOptions,
    TasksOptions,
)
from laaciq.options.interventions import InterveneOptions
from laaciq.options.main import (
    CardOptions,
    CheckOptions,
    CompareOptions,
    EvaluateOptions,
    PlanOptions,
    QuantizeOptions,
    RatingSheetOptions,
    RatingsOptions,
    RunOptions,
)
from laaciq.options.methods import METHODS, Method, find_method
from laaciq.options.studies import GatewayOptions, LabOptions, MixtureOptions, SensitivityOptions, SweepOptions
from laaciq.options.values import (
    BITS,
    BUILTIN,
    CHECKPOINT_METHOD,
    FULL_BITS,
    MOST_KEPT,
    OUTLIER_KURTOSIS,
    REFERENCE,
    REFERENCE_VARIANTS,
    USUAL_BITS,
    Bits,
    Cause,
    Clip,
    Effort,
    GroupSize,
    KeptPercent,
    Objective,
    Rounding,
    Runtime,
    flag,
)
from laaciq.options.weights import WeightOptions, reads_text

__all__ = [
    "BITS",
    "BUILTIN",
    "CHECKPOINT_METHOD",
    "FULL_BITS",
    "METHODS",
    "MOST_KEPT",
    "OUTLIER_KURTOSIS",
    "REFERENCE",
    "REFERENCE_VARIANTS",
    "USUAL_BITS",
    "VERBS",
    "BenchOptions",
    "Bits",
    "CardOptions",
    "Cause",
    "CheckOptions",
    "Clip",
    "CompareOptions",
    "Effort",
    "EvaluateOptions",
    "ExportOptions",
    "GatewayOptions",
    "GridOptions",
    "GroupSize",
    "ImatrixOptions",
    "InterveneOptions",
    "KeptPercent",
    "LabOptions",
    "MeasureOptions",
    "Method",
    "MixtureOptions",
    "Objective",
    "Options",
    "PlanOptions",
    "ProfileOptions",
    "QuantizeOptions",
    "RatingSheetOptions",
    "RatingsOptions",
    "Rounding",
    "RunOptions",
    "Runtime",
    "ScreenOptions",
    "SensitivityOptions",
    "SpeedOptions",
    "SurveyOptions",
    "SweepOptions",
    "TaskResultsOptions",
    "TasksOptions",
    "WeightOptions",
    "find_method",
    "flag",
    "is_profile",
    "is_repeated",
    "reads_text",
]

# By command.
VERBS: dict[str, type[Options]] = {
    kind.verb: kind
    for kind in (
        RunOptions,
        PlanOptions,
        QuantizeOptions,
        EvaluateOptions,
        CompareOptions,
        CheckOptions,
        CardOptions,
        RatingSheetOptions,
        RatingsOptions,
        ExportOptions,
        ImatrixOptions,
        BenchOptions,
        ProfileOptions,
        ScreenOptions,
        SurveyOptions,
        SensitivityOptions,
        SweepOptions,
        GatewayOptions,
        MixtureOptions,
        InterveneOptions,
        LabOptions,
        TasksOptions,
        TaskResultsOptions,
    )
}
