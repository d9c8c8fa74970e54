"""Columns of numbers as statistics need them: finite, one-dimensional, long enough, of the same length where they are paired."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def column(values: ArrayLike, *, least: int, name: str = "the column") -> np.ndarray:
    """A finite column of at least `least` numbers."""
    numbers = np.asarray(values, dtype=float)
    if numbers.ndim != 1 or len(numbers) < least:
        raise ValueError(f"{name} has the shape {numbers.shape}: give at least {least} numbers")
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} holds NaN or infinite values")
    return numbers


def paired_columns(x: ArrayLike, y: ArrayLike, *, of: str = "a correlation") -> tuple[np.ndarray, np.ndarray]:
    """Two columns of the same length, at least 3, neither of them constant."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"columns of shapes {x.shape} and {y.shape} cannot be paired: give two of the same length")
    if len(x) < 3:
        raise ValueError(f"{len(x)} pairs are too few for {of}: give at least 3")
    for name, numbers in (("first", x), ("second", y)):
        if not np.isfinite(numbers).all():
            raise ValueError(f"the {name} column holds NaN or infinite values")
        if np.ptp(numbers) == 0:
            raise ValueError(f"the {name} column is constant at {numbers[0]}: it correlates with nothing")
    return x, y


def group_places(groups: ArrayLike, count: int) -> list[np.ndarray]:
    """For each group, in the order of their names, the places of its members among `count` rows."""
    names = np.asarray(groups)
    if names.shape != (count,):
        raise ValueError(f"{names.size} names of groups for {count} rows: give one name per row")
    _, member = np.unique(names, return_inverse=True)
    return [np.flatnonzero(member == group) for group in range(int(member.max()) + 1)]
