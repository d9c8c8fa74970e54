"""The objective of a plan: one number over the losses of all languages (ΔNLL in nats per token; losses add in ΔNLL, not in D)."""

from __future__ import annotations

import math

import numpy as np

from laaciq.options import Objective


def quarter(languages: int) -> int:
    """Number of languages in the worst quarter, at least one."""
    return max(1, math.ceil(languages / 4))


def objective_value(losses: np.ndarray, objective: Objective, weights: np.ndarray | None = None) -> np.ndarray:
    """The objective of losses (…, languages). `weights` of languages apply to the mean only.

    `worst-and-spread` is 2·max − min, the worst loss plus the spread max − min. The spread alone would be smallest if all languages lost
    much.
    """
    match objective:
        case "mean":
            return np.average(losses, axis=-1, weights=weights)
        case "worst":
            return losses.max(-1)
        case "worst-quarter":
            return np.sort(losses, axis=-1)[..., -quarter(losses.shape[-1]) :].mean(-1)
        case "worst-and-spread":
            return 2 * losses.max(-1) - losses.min(-1)
