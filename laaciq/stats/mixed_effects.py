"""Regression over languages that are related: language family as a random effect, and how many independent languages there are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.optimize import minimize_scalar

from laaciq.stats.columns import column, group_places
from laaciq.stats.estimate import TAIL, Estimate

# The largest share of variance between groups that is looked for; at 1 the likelihood has no value.
_MOST = 1 - 1e-9


@dataclass(frozen=True)
class Coefficient:
    value: float
    standard_error: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class MixedModel:
    """`coefficients`: the intercept, then one per column. `intraclass` is the share of variance between groups (ICC, ρ).

    `freedom` are the degrees of freedom of intervals and p: groups − coefficients, at least 1.
    """

    coefficients: list[Coefficient]
    between_variance: float
    residual_variance: float
    deviance: float
    rows: int
    groups: int
    freedom: int

    @property
    def intraclass(self) -> float:
        total = self.between_variance + self.residual_variance
        return self.between_variance / total if total > 0 else 0.0


def random_intercepts(outcome: ArrayLike, groups: ArrayLike, columns: ArrayLike | None = None) -> MixedModel:
    """y = β₀ + Xβ + u_group + e, with u ~ N(0, τ²) and e ~ N(0, σ²), by restricted maximum likelihood (Patterson & Thompson 1971).

    The likelihood is profiled to the one parameter ρ = τ²/(τ² + σ²); `deviance` is −2 times its logarithm, as lme4 gives it. Degrees of freedom
    are those of a regression on group means: right for columns that vary between groups alone, conservative for others. Standard errors take
    ρ as known, and are too small with fewer than some 10 groups. Valid for normal effects and groups that are independent.
    """
    y = column(outcome, least=3, name="the outcome")
    design = np.ones((len(y), 1))
    if columns is not None:
        further = np.asarray(columns, dtype=float)
        further = further[:, None] if further.ndim == 1 else further
        if further.shape[0] != len(y) or not np.isfinite(further).all():
            raise ValueError("columns need one finite row per outcome")
        design = np.hstack([design, further])
    count, width = design.shape
    places = group_places(groups, count)
    if np.linalg.matrix_rank(design) < width or count <= width:
        raise ValueError(f"{count} rows do not determine {width} coefficients: give more rows, or fewer columns")
    if not 2 <= len(places) < count:
        raise ValueError("random effects need at least two groups, and one of them with two rows")

    def fit(intraclass: float) -> tuple[float, np.ndarray, np.ndarray, float]:
        """−2 ln restricted likelihood, β̂, (X′V⁻¹X)⁻¹ and σ̂², with V = I + θJ by group, θ = ρ/(1 − ρ)."""
        theta = intraclass / (1 - intraclass)
        both = np.hstack([design, y[:, None]])
        products, log_determinant = both.T @ both, 0.0
        for rows in places:
            sums = both[rows].sum(0)
            products -= theta / (1 + len(rows) * theta) * np.outer(sums, sums)
            log_determinant += np.log1p(len(rows) * theta)
        crossed = products[:-1, :-1]
        beta = np.linalg.solve(crossed, products[:-1, -1])
        residual = max(float(products[-1, -1] - products[:-1, -1] @ beta), np.finfo(float).tiny)
        sigma = residual / (count - width)
        deviance = log_determinant + np.linalg.slogdet(crossed)[1] + (count - width) * (np.log(2 * np.pi * sigma) + 1)
        return float(deviance), beta, np.linalg.inv(crossed), sigma

    found = minimize_scalar(
        lambda share: fit(share)[0], bounds=(0.0, _MOST), method="bounded", options={"xatol": 1e-10}
    )
    share = float(found.x) if fit(float(found.x))[0] < fit(0.0)[0] else 0.0
    deviance, beta, inverse, sigma = fit(share)
    freedom = max(1, len(places) - width)
    return MixedModel(
        coefficients=[
            _coefficient(value, error, freedom)
            for value, error in zip(beta, np.sqrt(sigma * inverse.diagonal()), strict=True)
        ],
        between_variance=sigma * share / (1 - share),
        residual_variance=sigma,
        deviance=deviance,
        rows=count,
        groups=len(places),
        freedom=freedom,
    )


@dataclass(frozen=True)
class Intraclass:
    """The share ρ of variance that lies between groups, with its 95 % interval; `p` tests ρ = 0."""

    share: Estimate
    p: float
    groups: int


def intraclass(values: ArrayLike, groups: ArrayLike) -> Intraclass:
    """ρ = (F − 1)/(F − 1 + m₀), F = mean square between / within groups, m₀ = (n − Σm²/n)/(k − 1), cut to [0, 1] (Donner 1986).

    The interval replaces F by F / F(.975) and F / F(.025) on k − 1 and n − k degrees of freedom: exact for normal values and groups of one
    size, near it otherwise. p is that of F. A few groups leave it wide.
    """
    y = column(values, least=3, name="the column")
    places = group_places(groups, len(y))
    count, sizes = len(y), np.array([len(rows) for rows in places], dtype=float)
    if not 2 <= len(places) < count:
        raise ValueError("an intraclass correlation needs at least two groups, and one of them with two rows")
    means = np.array([y[rows].mean() for rows in places])
    between = float(sizes @ (means - y.mean()) ** 2) / (len(places) - 1)
    within = float(sum(((y[rows] - mean) ** 2).sum() for rows, mean in zip(places, means, strict=True))) / (
        count - len(places)
    )
    size = (count - float((sizes**2).sum()) / count) / (len(places) - 1)
    ratio = between / within if within > 0 else np.inf
    freedom = (len(places) - 1, count - len(places))

    def share(f: float) -> float:
        return 1.0 if np.isinf(f) else float(np.clip((f - 1) / (f - 1 + size), 0.0, 1.0))

    low, high = (ratio / float(stats.f.ppf(tail, *freedom)) for tail in (1 - TAIL, TAIL))
    estimate = Estimate(value=share(ratio), low=share(low), high=share(high))
    return Intraclass(estimate, float(stats.f.sf(ratio, *freedom)), len(places))


def effective_languages(families: ArrayLike, intraclass: float) -> float:
    """How many independent languages the plain mean over these is worth: n²/Σ m(1 + (m − 1)ρ) over families of m languages (Kish 1965).

    All of them for ρ = 0; n²/Σm² for ρ = 1, which is the number of families only if all are of one size. A mean that weights languages by
    1/(1 + (m − 1)ρ) would be worth more, Σ m/(1 + (m − 1)ρ).
    """
    sizes = _sizes(families)
    related = (sizes * (1 + (sizes - 1) * _share(intraclass))).sum()
    return float(sizes.sum() ** 2 / related)


def standard_deviation(values: ArrayLike, independent: float) -> float:
    """σ of one language: the deviations from the mean, which share its error, raised by √(n_eff/(n_eff − 1)).

    E Σ(y − ȳ)²/n = σ²(1 − 1/n_eff), whatever the families. For unrelated languages it is the usual one, with n − 1. Valid for n_eff above 1.
    """
    y = column(values, least=2, name="the column")
    return float(y.std() * np.sqrt(independent / (independent - 1)))


def effective_pairs(families: ArrayLike, intraclass_x: float, intraclass_y: float) -> float:
    """How many independent languages a correlation over these is worth: 1 + n²/Σ m(1 + (m − 1)ρₓρᵧ), at most n.

    The variance of r is that of n independent pairs, raised by the covariances that both columns have within families (Clifford,
    Richardson & Hémon 1989). If one of the columns is unrelated to families, all n count.

    Simulated r of families of one size have this variance within a tenth. r of families of unlike size vary less: deviations from the mean
    lose most of what the languages of a large family share. With 17 of 32 languages in one family and ρₓ = ρᵧ = 0.6, the formula gives 8.7
    and simulation 17, so that tests by it are conservative.
    """
    sizes = _sizes(families)
    count = sizes.sum()
    related = (sizes * (1 + (sizes - 1) * _share(intraclass_x) * _share(intraclass_y))).sum()
    return float(min(count, 1 + count**2 / related))


def _sizes(families: ArrayLike) -> np.ndarray:
    names = np.asarray(families)
    return np.array([len(rows) for rows in group_places(names, len(names))], dtype=float)


def _share(intraclass: float) -> float:
    if not 0 <= intraclass <= 1:
        raise ValueError(f"an intraclass correlation of {intraclass} is not between 0 and 1")
    return float(intraclass)


def _coefficient(value: float, error: float, freedom: int) -> Coefficient:
    margin = float(stats.t.ppf(1 - TAIL, freedom)) * float(error)
    p = 2 * float(stats.t.sf(abs(value) / error, freedom)) if error > 0 else float(value == 0)
    return Coefficient(float(value), float(error), float(value) - margin, float(value) + margin, p)
