"""Predictions for languages that a model was not fitted on."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def held_out_predictions(
    features: ArrayLike, outcome: ArrayLike, folds: ArrayLike, *, intercept: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """For each language, what least squares on the other folds predicts from `features` (languages, columns), and the mean over the other
    folds, which any prediction must beat. Features are standardised on the fitted part; a constant one counts for nothing.
    """
    x, y = np.asarray(features, dtype=float), np.asarray(outcome, dtype=float)
    x = x[:, None] if x.ndim == 1 else x
    names = np.asarray(folds)
    predicted, mean = np.empty(len(y)), np.empty(len(y))
    for fold in np.unique(names):
        held, fitted = names == fold, names != fold
        mean[held] = y[fitted].mean()
        if intercept:
            centre, scale = x[fitted].mean(0), x[fitted].std(0)
            scale = np.where(scale > 0, scale, np.inf)
            design, other = (
                np.column_stack([np.ones(len(part)), (part - centre) / scale]) for part in (x[fitted], x[held])
            )
        else:
            design, other = x[fitted], x[held]
        predicted[held] = other @ np.linalg.lstsq(design, y[fitted], rcond=None)[0]
    return predicted, mean


def halves(count: int, seed: int = 0) -> np.ndarray:
    """A random division of languages into two folds, the same for the same number and seed."""
    return np.random.default_rng(seed).permutation(count) % 2
