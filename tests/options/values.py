"""A valid value of every option of every command that is not its default."""

from laaciq.options import VERBS

VALUES = {
    "model": "org/model",
    "texts": "folder",
    "languages": ("eng", "swa"),
    "window": 64,
    "seed": 1,
    "served_bound": 5.0,
    "passages": 3,
    "bits": 3,
    "group_size": 32,
    "method": "mse",
    "plan": "plan.json",
    "keep": 1.0,
    "keep_by": "saliency",
    "protect": ("0,1", "swa=1"),
    "protect_bits": 8,
    "outlier_bits": 8,
    "outlier_kurtosis": 10.0,
    "outlier_by": "component",
    "attention_bits": 8,
    "embedding_bits": 8,
    "rank": 2,
    "table_overhead": 1.0,
    "calibration_languages": ("eng",),
    "hold_out": ("swa",),
    "tune": 1,
    "draws": 2,
    "prompts": 3,
    "budget": 4.5,
    "budget_for": "model",
    "objective": "mean",
    "language_weight": ("swa=3",),
    "effort": "full",
    "runtime": "vllm",
    "checkpoint": "checkpoint",
    "against": "original",
    "methods": ("gptq", "planned"),
    "calibration": "eng",
    "calibration_passages": 4,
    "part": "test",
    "tolerance": 0.1,
    "single_language": "swa",
    "rounds": 1,
    "leave_out": ("swa",),
    "do": "bits",
    "kurtosis": (5.0, 50.0),
    "blocks": (0, 2),
    "rates": (0.5,),
    "to_bits": 6,
    "format": "gguf",
    "dtype": "float32",
    "prompt_tokens": 8,
    "new_tokens": 8,
    "batch": 2,
    "decoding": "both",
    "exposure": "exposure.json",
    "source": "org/model",
    "models": ("org/model", "org/other"),
    "claims": ("effective-kurtosis",),
    "run": "run",
    "max_degradation": 0.1,
    "max_disparity": 0.1,
    "base_model": "org/model",
    "name": "org/name",
    "license": "mit",
    "original": "original",
    "quantized": "quantized",
    "metric": "exact_match",
    "pairs": 5,
    "files": ("a.csv", "b.csv"),
    "key": "key.json",
}
OTHERWISE = {("sweep", "bits"): (3, 4), ("mixture", "calibration_passages"): (2, 4), ("gateway", "protect"): 2}


def value(verb, name):
    field = VERBS[verb].model_fields[name]
    return not field.default if isinstance(field.default, bool) else OTHERWISE.get((verb, name), VALUES[name])


def required(verb):
    """What a command cannot do without."""
    limit = {"max_degradation": 0.2} if verb == "check" else {}
    return limit | {n: value(verb, n) for n, field in VERBS[verb].model_fields.items() if field.is_required()}
