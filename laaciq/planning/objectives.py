"""What a plan is to make small, as one number over the languages' losses (ΔNLL in nats a token; losses add in ΔNLL, not in D)."""

from __future__ import annotations

import math

import numpy as np

from laaciq.options import Objective


def quarter(languages: int) -> int:
    """How many languages are the worst quarter: at least one."""
    return max(1, math.ceil(languages / 4))


def objective_value(losses: np.ndarray, objective: Objective, weights: np.ndarray | None = None) -> np.ndarray:
    """Of losses (…, languages). `weights` of languages count for the mean alone.

    `disparity` is 2·max − min: the spread and with it the worst, so that languages are not made equal by making all of them bad.
    """
    match objective:
        case "mean":
            return np.average(losses, axis=-1, weights=weights)
        case "worst":
            return losses.max(-1)
        case "worst-quarter":
            return np.sort(losses, axis=-1)[..., -quarter(losses.shape[-1]) :].mean(-1)
        case "disparity":
            return 2 * losses.max(-1) - losses.min(-1)
