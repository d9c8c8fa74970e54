"""The size budget of a plan, in bits for the optimiser and in bits per weight for people; and the weights of languages."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from laaciq.corpus import language
from laaciq.errors import BadOption
from laaciq.models import Anatomy
from laaciq.options import FULL_BITS, WeightOptions
from laaciq.options.values import parse_language_weight
from laaciq.planning.runtimes import RUNTIMES
from laaciq.quantization.plan import TensorPlan


@dataclass(frozen=True)
class Budget:
    """`bits` for the planned tensors. Bits per weight count `weights`, of which those outside the plan take `fixed` bits. `given` is the
    size as the user gave it.
    """

    bits: int
    weights: int
    fixed: int
    given: str

    def per_weight(self, bits: int) -> float:
        """Bits per weight when the planned tensors take `bits`."""
        return (bits + self.fixed) / self.weights

    def require(self, smallest: int) -> None:
        """Raise `BadOption` if the budget is below `smallest`, the bits of the smallest plan."""
        if self.bits >= smallest:
            return
        # Rounded up, so that the number itself is enough.
        enough = math.ceil(self.per_weight(smallest) * 1e4) / 1e4
        raise BadOption(
            f"{self.given} is too small: the smallest plan takes {_size(enough)}; give --budget {enough:g} or more"
        )


def _size(number: float) -> str:
    return f"{number:g} bit{'' if number == 1 else 's'} per weight"


def size_budget(anatomy: Anatomy, options: WeightOptions, tensors: list[TensorPlan]) -> Budget:
    """The budget for `tensors`, all that a plan may quantize: --budget, or the size of the symmetric grid of --bits and --group-size in the
    files of --runtime.

    What a plan does not quantize counts in 16 bits: weights of the blocks, and for the whole model everything.
    """
    in_blocks = [tensor for tensor in tensors if not tensor.used_by]
    planned = sum(tensor.weights for tensor in tensors)
    whole = options.budget_for == "model"
    left_alone = sum(part.count for part in anatomy.left_in_blocks)
    weights = anatomy.parameter_count() if whole else planned + left_alone
    fixed = FULL_BITS * (weights - planned)
    if options.budget is not None:
        return Budget(int(options.budget * weights) - fixed, weights, fixed, _size(options.budget))
    grid = {"bits": options.bits, "group_size": options.group_size, "symmetric": True}
    others = FULL_BITS * (planned - sum(tensor.weights for tensor in in_blocks))
    rules = RUNTIMES[options.runtime]
    bits = sum(rules.stored_bits(tensor.model_copy(update=grid)) for tensor in in_blocks) + others
    return Budget(bits, weights, fixed, f"{options.bits} bits, group size {options.group_size},")


def user_weights(entries: tuple[str, ...], languages: list[str]) -> np.ndarray | None:
    """Weights by language from entries such as `("eng=5", "swa=2")`; the default weight is 1. None without entries."""
    if not entries:
        return None
    weights = dict.fromkeys(languages, 1.0)
    for entry in entries:
        name, weight = parse_language_weight(entry)
        if (code := language(name).code) not in weights:
            raise BadOption(f"--language-weight names {code}, which is not a language of this plan")
        weights[code] = weight
    if not sum(weights.values()):
        raise BadOption("all --language-weight are zero: give one language a positive weight")
    return np.array(list(weights.values()))
