"""What a plan may take, and what each language counts, from the options."""

from __future__ import annotations

import numpy as np

from laaciq.corpus import language
from laaciq.errors import BadOption
from laaciq.models import LanguageModel
from laaciq.options import FULL_BITS, QuantizeOptions
from laaciq.quantization.plan import TensorPlan


def budget_bits(model: LanguageModel, options: QuantizeOptions, tensors: list[TensorPlan]) -> int:
    """What the planned tensors may take: the budget, or as much as the plain grid of --bits and --group-size would."""
    plain = {"bits": options.bits, "group_size": options.group_size, "symmetric": True}
    in_blocks = [tensor for tensor in tensors if not tensor.used_by]
    others = FULL_BITS * sum(tensor.weights for tensor in tensors if tensor.used_by)
    if options.budget is None:
        return sum(tensor.model_copy(update=plain).stored_bits for tensor in in_blocks) + others
    if options.budget_for == "blocks":
        return int(options.budget * sum(tensor.weights for tensor in in_blocks))
    everything = model.anatomy.parameter_count()
    return int(options.budget * everything) - FULL_BITS * (everything - sum(tensor.weights for tensor in tensors))


def user_weights(entries: tuple[str, ...], languages: list[str]) -> np.ndarray | None:
    """`("eng=5", "swa=2")` → by language, one where nothing is said."""
    if not entries:
        return None
    found = dict.fromkeys(languages, 1.0)
    for entry in entries:
        name, separator, number = entry.partition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = -1.0
        if not separator or weight < 0:
            raise BadOption(f"--language-weight {entry!r} is no weight: write for example 'swa=3'")
        if (code := language(name).code) not in found:
            raise BadOption(f"--language-weight names {code}, which is not among the languages that decide")
        found[code] = weight
    if not sum(found.values()):
        raise BadOption("all --language-weight are zero: give one language a positive weight")
    return np.array(list(found.values()))
