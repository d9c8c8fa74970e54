"""How time grows with the shape of a model: least squares over measured shapes, judged by leaving out one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from benchmarks.scale_shapes import Shape

# A form with fewer terms is preferred as long as no shape that is left out is predicted worse than by this share.
SMALL_ERROR = 0.1
# Forms that predict every shape that is left out within this share may all be true far beyond the measured shapes.
FAIR_ERROR = 0.25


@dataclass(frozen=True)
class Term:
    """What grows, and its name with its unit."""

    name: str
    of: Callable[[Shape], float]


CONSTANT = Term("", lambda shape: 1.0)
BLOCKS = Term("blocks", lambda shape: float(shape.blocks))
WEIGHTS = Term("10⁹ weights", lambda shape: shape.parameters / 1e9)
FACTORIZED = Term("10¹² Σ inputs³", lambda shape: shape.factorized / 1e12)
ROUNDED = Term("10¹² Σ outputs·inputs²", lambda shape: shape.rounded / 1e12)
# The text is the same for every shape, so that its tokens are in the coefficients.
TIME_FORMS = (
    (CONSTANT, WEIGHTS),
    (BLOCKS, WEIGHTS),
    (CONSTANT, WEIGHTS, FACTORIZED),
    (CONSTANT, WEIGHTS, ROUNDED),
    (CONSTANT, BLOCKS, WEIGHTS),
)


@dataclass(frozen=True)
class Fit:
    """Σ coefficient · term. `error` is the largest relative error on a shape that was left out."""

    terms: tuple[Term, ...]
    coefficients: tuple[float, ...]
    error: float

    def __call__(self, shape: Shape) -> float:
        return sum(c * term.of(shape) for c, term in zip(self.coefficients, self.terms, strict=True))

    def __str__(self) -> str:
        pairs = [(c, term.name) for c, term in zip(self.coefficients, self.terms, strict=True) if c]
        return " + ".join(f"{c:,.3g}{name and f' · {name}'}" for c, name in pairs)


def choose_fit(fits: Sequence[Fit]) -> Fit | None:
    """The simplest one with a small error, or else the one with the smallest error."""
    small = [fit for fit in fits if fit.error <= SMALL_ERROR]
    if small:
        return min(small, key=lambda fit: (len(fit.terms), fit.error))
    return min(fits, key=lambda fit: fit.error, default=None)


def all_fits(measured: Mapping[Shape, float], forms: Sequence[tuple[Term, ...]] = TIME_FORMS) -> list[Fit]:
    """One for every form that has fewer terms than there are shapes."""
    return [fit for terms in forms if (fit := fit_form(measured, terms)) is not None]


def fit_form(measured: Mapping[Shape, float], terms: tuple[Term, ...]) -> Fit | None:
    """None if leaving out a shape leaves fewer shapes than terms."""
    if len(measured) <= len(terms):
        return None
    features = np.array([[term.of(shape) for term in terms] for shape in measured])
    values = np.array(list(measured.values()))
    left_out = [np.arange(len(values)) != number for number in range(len(values))]
    predicted = [features[~kept] @ _relative_squares(features[kept], values[kept]) for kept in left_out]
    error = np.abs(np.concatenate(predicted) / values - 1).max()
    return Fit(terms, tuple(_relative_squares(features, values).tolist()), float(error))


def _relative_squares(features: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Coefficients c ≥ 0 of least Σ (features·c / values − 1)²."""
    scaled = features / values[:, None]
    units = np.abs(scaled).max(0)
    return nnls(scaled / units, np.ones(len(values)))[0] / units
