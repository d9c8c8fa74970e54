"""Rules for statistics over languages: correlations, means of differences, groups, disparities, predictions.

Languages of one family are not independent. Standard errors are those of as many independent languages as they count as
(`laaciq.stats.mixed_effects`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from laaciq.lab.findings import Bars, Finding, Plot, TooFew
from laaciq.lab.rules import Claimed, from_error, from_interval, require_independent, require_languages
from laaciq.stats.correlation import partial
from laaciq.stats.estimate import Estimate
from laaciq.stats.mixed_effects import effective_languages, effective_pairs, intraclass, standard_deviation
from laaciq.stats.ratio import ratio_influence
from laaciq.trials.losses import Losses


def correlation(
    x: ArrayLike, y: ArrayLike, families: Sequence[str], *, claim: Claimed, plot: Plot | None = None, note: str = ""
) -> Finding:
    """Pearson's r on the scale atanh r. Its standard error is the larger of Fisher's, 1/√(n − 3) for n independent languages, and the
    jackknife's: single languages far off make the first too small.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    require_languages(len(x))
    _require_spread(x, y)
    independent = independent_pairs(x, y, families)
    require_independent(independent)
    error = max(1 / np.sqrt(independent - 3), _jackknife_error(x, y) * np.sqrt(len(x) / independent))
    return from_error(
        _r(x, y), float(error), freedom=independent - 3, claim=claim, languages=len(x), independent=independent,
        scale="atanh", plot=plot, note=note,
    )  # fmt: skip


def pair_correlation(
    x: ArrayLike, y: ArrayLike, families: Sequence[str], *, claim: Claimed, plot: Plot | None = None, note: str = ""
) -> Finding:
    """r over pairs of languages of two symmetric matrices (Mantel 1967), with the jackknife's standard error over languages: each is in many
    pairs, so that pairs are not independent. What related languages share is seen in their mean over pairs: valid for differences of one
    quantity per language, not for distances in many dimensions, which families can share while no mean shows it.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    count = len(x)
    require_languages(count)
    upper = np.triu(np.ones((count, count), dtype=bool), 1)
    _require_spread(x[upper], y[upper])
    independent = independent_pairs(x.mean(1), y.mean(1), families)
    require_independent(independent)
    left_out = []
    for row in range(count):
        kept = upper.copy()
        kept[row], kept[:, row] = False, False
        left_out.append(np.arctanh(np.clip(_r(x[kept], y[kept]), -1 + 1e-12, 1 - 1e-12)))
    error = _spread_error(np.array(left_out)) * np.sqrt(count / independent)
    return from_error(
        _r(x[upper], y[upper]), error, freedom=independent - 3, claim=claim, languages=count, independent=independent,
        scale="atanh", plot=plot, note=note,
    )  # fmt: skip


def partial_correlation(
    x: ArrayLike,
    y: ArrayLike,
    controls: ArrayLike,
    families: Sequence[str],
    *,
    claim: Claimed,
    plot: Plot | None = None,
    note: str = "",
) -> Finding:
    """r of what the controls leave of both columns, as `correlation`; each control costs one language."""
    x, y, held = np.asarray(x, dtype=float), np.asarray(y, dtype=float), np.asarray(controls, dtype=float)
    width = 1 if held.ndim == 1 else held.shape[1]
    _require_spread(x, y)
    require_languages(len(x))
    design = np.column_stack([np.ones(len(x)), held])
    left, right = (column - design @ np.linalg.lstsq(design, column, rcond=None)[0] for column in (x, y))
    independent = independent_pairs(left, right, families) - width
    require_independent(independent)
    return from_error(
        partial(x, y, held).r, float(1 / np.sqrt(independent - 3)), freedom=independent - 3, claim=claim, languages=len(x),
        independent=independent, scale="atanh", plot=plot, note=note,
    )  # fmt: skip


def mean_over_languages(
    values: ArrayLike, families: Sequence[str], *, claim: Claimed, plot: Plot | None = None, note: str = ""
) -> Finding:
    """The mean over languages, such as that of paired differences, with Student's t.

    How alike relatives are is estimated from the same values, and 32 languages of a dozen families tell little of it: at a true ρ of 0.3,
    up to 8 % of means about a true null are rejected, and 4 % or fewer without families or at ρ = 0.6 (with 17 of 32 languages in one family).
    """
    values = np.asarray(values, dtype=float)
    require_languages(len(values))
    error, independent = error_of_mean(values, families)
    return from_error(
        float(values.mean()), error, freedom=max(1.0, independent - 1), claim=claim, languages=len(values),
        independent=independent, plot=plot, note=note,
    )  # fmt: skip


def others_against_one(
    values: ArrayLike, one: float, families: Sequence[str], *, claim: Claimed, plot: Plot | None = None, note: str = ""
) -> Finding:
    """The mean of other languages minus the value of one. The one is a single draw, so that the error is that of a new observation: the
    standard deviation times √(1 + 1/n).
    """
    values = np.asarray(values, dtype=float)
    require_languages(len(values))
    independent = effective_languages(families, _share(values, families))
    error = standard_deviation(values, independent) * float(np.sqrt(1 + 1 / independent))
    return from_error(
        float(values.mean() - one), error, freedom=max(1.0, independent - 1), claim=claim, languages=len(values) + 1,
        independent=independent, plot=plot, note=note,
    )  # fmt: skip


def disparity_difference(
    losses: Losses, other: Losses, *, claim: Claimed, plot: Plot | None = None, note: str = ""
) -> Finding:
    """max D − min D minus that of another candidate, paired by document."""
    require_languages(len(losses.codes))
    return from_interval(
        losses.disparity_difference(other), claim=claim, languages=len(losses.codes), plot=plot, note=note
    )


def ratio_of_groups(
    left: ArrayLike, right: ArrayLike, *, claim: Claimed, plot: Plot | None = None, note: str = ""
) -> Finding:
    """The mean of one group of languages over that of another, on the logarithmic scale (delta method), with Welch's degrees of freedom."""
    left, right = np.asarray(left, dtype=float), np.asarray(right, dtype=float)
    if min(len(left), len(right)) < 4:
        raise TooFew(f"groups of {len(left)} and {len(right)} languages are too few", "each needs at least 4")
    means = left.mean(), right.mean()
    if min(means) <= 0:
        raise TooFew("a group loses nothing on average, so that there is no ratio", "fewer bits, or more passages")
    parts = [values.var(ddof=1) / len(values) / mean**2 for values, mean in zip((left, right), means, strict=True)]
    spread = sum(part**2 / (len(v) - 1) for part, v in zip(parts, (left, right), strict=True))
    freedom = sum(parts) ** 2 / spread if spread > 0 else 1.0
    return from_error(
        float(means[0] / means[1]), float(np.sqrt(sum(parts))), freedom=float(freedom), claim=claim,
        languages=len(left) + len(right), scale="log", plot=plot, note=note,
    )  # fmt: skip


def disparity_ratio(losses: Losses, baseline: Losses, *, claim: Claimed, names: tuple[str, str]) -> Finding:
    """max D − min D over that of a baseline, paired by document."""
    require_languages(len(losses.codes))
    values = [side.disparity().estimate for side in (losses, baseline)]
    plot = Bars(names=list(names), values=values, label="disparity, max D − min D")
    return from_interval(
        losses.disparity_ratio(baseline), claim=claim, languages=len(losses.codes), scale="log", plot=plot
    )


def mean_loss_ratio(losses: Losses, baseline: Losses, *, claim: Claimed, names: tuple[str, str]) -> Finding:
    """The mean ΔNLL over languages, over that of a baseline."""
    require_languages(len(losses.codes))
    if baseline.mean().value <= 0:
        raise TooFew(
            f"{names[1]}: nothing is lost on average, so that there is no ratio", "fewer bits, or more passages"
        )
    plot = Bars(names=list(names), values=[side.mean() for side in (losses, baseline)], label="mean ΔNLL per token")
    return from_interval(losses.mean_ratio(baseline), claim=claim, languages=len(losses.codes), scale="log", plot=plot)


def disparity_over(losses: Losses, unit: float, *, claim: Claimed, plot: Plot | None = None, note: str = "") -> Finding:
    """max D − min D in multiples of `unit`, such as a bound. Noise of the unit itself is not counted."""
    require_languages(len(losses.codes))
    found = losses.disparity().estimate
    scaled = Estimate(value=found.value / unit, low=found.low / unit, high=found.high / unit)
    return from_interval(scaled, claim=claim, languages=len(losses.codes), scale="log", plot=plot, note=note)


def prediction_gain(
    observed: ArrayLike,
    predicted: ArrayLike,
    mean_predicted: ArrayLike,
    families: Sequence[str],
    *,
    claim: Claimed,
    plot: Plot | None = None,
    note: str = "",
) -> Finding:
    """1 − Σ(y − ŷ)² / Σ(y − ȳ)², both predictions made without the language: the share of the squared error that a prediction removes. Its
    standard error is the jackknife's over families.
    """
    observed, predicted, mean = (np.asarray(v, dtype=float) for v in (observed, predicted, mean_predicted))
    require_languages(len(observed))
    groups = sorted(set(families))
    require_independent(len(groups))
    member = np.array([[name == group for name in families] for group in groups], dtype=float)
    base, left = member @ (observed - mean) ** 2, member @ (observed - predicted) ** 2
    value = 1 - left.sum() / base.sum()
    error = float(np.sqrt((ratio_influence(base - left, base) ** 2).sum()))
    return from_error(
        float(value), error, freedom=len(groups) - 1, claim=claim, languages=len(observed), independent=len(groups),
        plot=plot, note=note,
    )  # fmt: skip


def error_of_mean(values: np.ndarray, families: Sequence[str]) -> tuple[float, float]:
    """The standard error of the mean over related languages, and how many independent ones they count as."""
    independent = effective_languages(families, _share(values, families))
    return float(standard_deviation(values, independent) / np.sqrt(independent)), independent


def independent_pairs(x: np.ndarray, y: np.ndarray, families: Sequence[str]) -> float:
    """How many independent languages a correlation over these is worth."""
    return effective_pairs(families, _share(x, families), _share(y, families))


def _share(values: np.ndarray, families: Sequence[str]) -> float:
    """Of variance between families; 0 if no two languages are related."""
    if not 1 < len(set(families)) < len(families) or np.ptp(values) == 0:
        return 0.0
    return intraclass(values, families).share.value


def _r(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.clip(np.corrcoef(x, y)[0, 1], -1, 1))


def _jackknife_error(x: np.ndarray, y: np.ndarray) -> float:
    """Of atanh r, leaving out one language at a time. About the means, a sum of products without language i is S − n/(n − 1)·xᵢyᵢ."""
    count = len(x)
    x, y = x - x.mean(), y - y.mean()
    raised = count / (count - 1)
    xx, yy, xy = (u @ v - raised * u * v for u, v in ((x, x), (y, y), (x, y)))
    left_out = np.arctanh(np.clip(xy / np.sqrt(np.maximum(xx * yy, np.finfo(float).tiny)), -1 + 1e-12, 1 - 1e-12))
    return _spread_error(left_out)


def _spread_error(left_out: np.ndarray) -> float:
    """The jackknife's standard error (Tukey 1958)."""
    count = len(left_out)
    return float(np.sqrt((count - 1) / count * ((left_out - left_out.mean()) ** 2).sum()))


def _require_spread(x: np.ndarray, y: np.ndarray) -> None:
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        raise TooFew("all languages have the same value", "a quantity that differs between languages")
