"""What a run means for the theory: does D go with R̂ and κ_eff over languages, and do groups of languages differ?

The theory: languages that use outlier blocks less lose more, r(R̂, D) < −0.5 where blocks have κ above 50 and |r| < 0.3 where all have κ
below 5. Definitions: `docs/statistics.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from laaciq.corpus.families import family
from laaciq.evaluation.results import Evaluation, LanguageResult
from laaciq.options import OUTLIER_KURTOSIS
from laaciq.profiling.results import Profile
from laaciq.stats.correlation import pearson, permutation_p
from laaciq.stats.effect_size import cliffs_delta, hedges_g
from laaciq.stats.estimate import LEVEL, Estimate
from laaciq.stats.mixed_effects import effective_pairs, intraclass
from laaciq.stats.permutation import two_sample_test
from laaciq.stats.power import USUAL_POWER, correlation_power, detectable_correlation, detectable_difference
from laaciq.strict import StrictModel

# The theory's claim for models with outlier blocks, and what it allows where all blocks are near Gaussian.
CLAIMED, NEGLIGIBLE = -0.5, 0.3
GAUSSIAN_KURTOSIS = 5.0
# Languages below this share of the median exposure have low exposure.
LOW_EXPOSURE = 1 / 3
# Pairs that a power needs.
_FEWEST = 4

Quantity = Literal["outlier_fraction", "effective_kurtosis"]
_SYMBOLS: dict[str, str] = {"outlier_fraction": "R̂", "effective_kurtosis": "κ_eff"}
_Share = Annotated[float, Field(ge=0, le=1)]


class Relation(StrictModel):
    """Pearson's r of a quantity with D over `languages` languages; `permutation_p` needs no distribution.

    `independent` is how many independent languages they count as, `power` the probability that so many find r = −0.5, `detectable` the
    smallest |r| that they find with a power of 0.8. `undefined` says why there is no r; the other figures are None then.
    """

    quantity: Quantity
    languages: int
    r: Estimate | None = None
    permutation_p: _Share | None = None
    independent: float | None = None
    power: _Share | None = None
    detectable: float | None = None
    undefined: str | None = None

    @property
    def symbol(self) -> str:
        return _SYMBOLS[self.quantity]

    @property
    def significant(self) -> bool:
        return self.permutation_p is not None and self.permutation_p < 1 - LEVEL

    @property
    def powerful(self) -> bool:
        """True if a correlation as strong as the theory claims would be found."""
        return self.power is not None and self.power >= USUAL_POWER


class Contrast(StrictModel):
    """D of two groups of languages: Hedges' g and Cliff's δ, above zero if the left group loses more, and p by permutation.

    `detectable` is the smallest difference in standard deviations that groups of this size find with a power of 0.8.
    """

    left: str
    right: str
    left_languages: list[str]
    right_languages: list[str]
    left_mean: float
    right_mean: float
    g: Estimate
    delta: Estimate
    p: _Share
    detectable: float


class Families(StrictModel):
    """`share` is the share of the variance of D that lies between language families, and `p` tests that it is 0."""

    languages: dict[str, list[str]]
    share: Estimate
    p: _Share


class TheoryFindings(StrictModel):
    """The theory's quantities against D, over the languages that are judged and profiled.

    `passages` is the smallest number of passages that a language was profiled on.
    `families` is None if no two languages are known to be related.
    """

    version: Literal[1] = 1
    max_kurtosis: float
    outlier_blocks: list[int]
    passages: int
    relations: list[Relation]
    contrasts: list[Contrast]
    families: Families | None

    def __getitem__(self, quantity: Quantity) -> Relation:
        return next(relation for relation in self.relations if relation.quantity == quantity)

    @property
    def expectation(self) -> str | None:
        """What the theory expects of r on this model; None where it says nothing."""
        if self.max_kurtosis > OUTLIER_KURTOSIS:
            return f"r below {CLAIMED:g}".replace("-", "−")
        return f"|r| below {NEGLIGIBLE:g}" if self.max_kurtosis < GAUSSIAN_KURTOSIS else None


def theory_findings(
    evaluation: Evaluation, profile: Profile, *, exposure: Mapping[str, int] | None = None
) -> TheoryFindings:
    """The findings of one evaluation. `exposure` is the number of tokens seen in training by language, if known."""
    profiled = {result.language: result for result in profile.languages}
    judged = [result for result in evaluation.judged if result.language in profiled]
    quantities: dict[Quantity, list[float]] = {
        "outlier_fraction": [profiled[r.language].outlier_fraction for r in judged],
        "effective_kurtosis": [profiled[r.language].effective_kurtosis for r in judged],
    }
    return TheoryFindings(
        max_kurtosis=profile.max_kurtosis,
        outlier_blocks=profile.outlier_blocks,
        passages=min((profiled[r.language].passages for r in judged), default=0),
        relations=[_relation(quantity, values, judged, profile) for quantity, values in quantities.items()],
        contrasts=[c for c in (_exposures(judged, exposure or {}), _scripts(judged)) if c is not None],
        families=_families(judged),
    )


def _relation(quantity: Quantity, values: list[float], judged: list[LanguageResult], profile: Profile) -> Relation:
    count, degradation = len(judged), _degradations(judged)
    reason = None
    if quantity == "outlier_fraction" and not profile.outlier_blocks:
        reason = f"no block is an outlier block (max κ {profile.max_kurtosis:.2f}), so R̂ is 0 for every language"
    elif count < _FEWEST:
        reason = f"{count} languages are too few, and {_FEWEST} are needed"
    elif np.ptp(values) == 0 or np.ptp(degradation) == 0:
        reason = "all languages have the same value"
    if reason is not None:
        return Relation(quantity=quantity, languages=count, undefined=reason)
    found = pearson(values, degradation)
    independent = _independent(values, judged)
    counted = max(_FEWEST, int(independent))
    return Relation(
        quantity=quantity,
        languages=count,
        r=Estimate(value=found.r, low=min(found.r, found.low), high=max(found.r, found.high)),
        permutation_p=permutation_p(values, degradation),
        independent=independent,
        power=correlation_power(CLAIMED, counted),
        detectable=detectable_correlation(counted),
    )


def _independent(values: list[float], judged: list[LanguageResult]) -> float:
    """How many independent languages the correlation is worth; a language without a known family counts as unrelated."""
    groups = [family(r.language) or r.language for r in judged]
    if not _related(groups):
        return float(len(groups))
    shares = [intraclass(column, groups).share.value for column in (values, _degradations(judged))]
    return effective_pairs(groups, *shares)


def _exposures(judged: list[LanguageResult], exposure: Mapping[str, int]) -> Contrast | None:
    known = [r for r in judged if r.language in exposure]
    if not known:
        return None
    bound = LOW_EXPOSURE * float(np.median([exposure[r.language] for r in known]))
    low = [r for r in known if exposure[r.language] < bound]
    return _contrast("low exposure", low, "high exposure", [r for r in known if r not in low])


def _scripts(judged: list[LanguageResult]) -> Contrast | None:
    other = [r for r in judged if r.script != "Latin"]
    return _contrast("other scripts", other, "Latin script", [r for r in judged if r not in other])


def _contrast(left: str, lefts: list[LanguageResult], right: str, rights: list[LanguageResult]) -> Contrast | None:
    """None if a group has fewer than two languages, or nothing varies."""
    values = _degradations(lefts), _degradations(rights)
    if min(len(lefts), len(rights)) < 2 or max(map(np.ptp, values)) == 0 or len(lefts) + len(rights) < _FEWEST:
        return None
    return Contrast(
        left=left,
        right=right,
        left_languages=[r.language for r in lefts],
        right_languages=[r.language for r in rights],
        left_mean=_mean(lefts),
        right_mean=_mean(rights),
        g=hedges_g(*values),
        delta=cliffs_delta(*values),
        p=two_sample_test(*values).p,
        detectable=detectable_difference(len(lefts), len(rights)),
    )


def _families(judged: list[LanguageResult]) -> Families | None:
    members: dict[str, list[LanguageResult]] = {}
    for result in judged:
        if (name := family(result.language)) is not None:
            members.setdefault(name, []).append(result)
    ordered = [(name, result) for name, results in members.items() for result in results]
    groups, values = [name for name, _ in ordered], _degradations([result for _, result in ordered])
    if len(members) < 2 or not _related(groups) or np.ptp(values) == 0:
        return None
    found = intraclass(values, groups)
    codes = {name: [r.language for r in results] for name, results in members.items()}
    return Families(languages=codes, share=found.share, p=found.p)


def _related(groups: list[str]) -> bool:
    """True if there are several groups, and one of them has two members."""
    return 1 < len(set(groups)) < len(groups)


def _degradations(results: list[LanguageResult]) -> np.ndarray:
    return np.expm1([r.loss.value for r in results])


def _mean(results: list[LanguageResult]) -> float:
    """A mean of ΔNLL per token, converted to D."""
    return float(np.expm1(np.mean([r.loss.value for r in results])))
