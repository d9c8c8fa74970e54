"""do(T): the same text in more tokens. Unlike a comparison of languages, nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from laaciq.lab.claim import Claim
from laaciq.lab.evidence import Evidence, ProfileTable
from laaciq.lab.findings import Finding, TooFew
from laaciq.lab.language_rules import error_of_mean, independent_pairs, mean_loss_ratio, mean_over_languages
from laaciq.lab.rules import Claimed, from_error, require_independent, require_languages

LOSS = Claimed(
    statistic="mean ΔNLL of the same text in more tokens, over that in usual ones", threshold=1.0, side="above", claimed=1.5
)  # fmt: skip
ALIGNMENT = Claimed(statistic="change of alignment in more tokens", threshold=0.0, side="below", claimed=-0.05)
REDUNDANCY = Claimed(statistic="change of redundancy in more tokens", threshold=0.0, side="below", claimed=-0.05)
# D per doubling of tokens: a tenth is about what rounding to 4 bits costs.
IDENTIFIED = Claimed(
    statistic="effect of T on D by intervention, minus that by adjustment", threshold=0.1, side="within", claimed=0.0
)


def _loss(evidence: Evidence) -> Finding:
    """By text: per token, the same damage would count as less where there are more tokens."""
    split = evidence.losses("split-tokens")
    usual = evidence.losses("rtn-4").only(split.codes)
    by_text = replace(split, tokens=usual.tokens)
    more = np.mean([a.sum() / b.sum() for a, b in zip(split.tokens, usual.tokens, strict=True)])
    found = mean_loss_ratio(by_text, usual, claim=LOSS, names=("more tokens", "usual tokens"))
    note = f"The text has {more:.2f} times as many tokens: per token, the ratio is about {found.estimate.value / more:.2f}."
    return found.model_copy(update={"note": note})


def _change(evidence: Evidence, quantity: str, claim: Claimed) -> Finding:
    before: ProfileTable = evidence.profile
    after: ProfileTable = evidence["split-profile"]
    change = getattr(after, quantity) - getattr(before, quantity)
    # English stays as it is: the others are aligned with it.
    known = ~np.isnan(change) & (np.array(before.codes) != "eng")
    if not known.any():
        raise TooFew(f"{quantity} is not known", "parallel texts with English")
    families = [family for family, is_known in zip(before.families, known, strict=True) if is_known]
    return mean_over_languages(change[known], families, claim=claim)


def _alignment(evidence: Evidence) -> Finding:
    return _change(evidence, "alignment", ALIGNMENT)


def _redundancy(evidence: Evidence) -> Finding:
    return _change(evidence, "redundancy", REDUNDANCY)


def _identified(evidence: Evidence) -> Finding:
    """Both are D per doubling of tokens. Adjusted: the slope of D on log₂ fertility beside log exposure, over languages."""
    table, degradation = evidence.table("rtn-4")
    table.require_exposure()
    usual, split = evidence.losses("rtn-4"), evidence.losses("split-tokens").only(table.codes)
    require_languages(len(table.codes))
    doublings = np.log2([a.sum() / b.sum() for a, b in zip(split.tokens, usual.tokens, strict=True)])
    # A language in single bytes has no shorter tokens.
    if doublings.min() <= 0:
        raise TooFew("a language has no shorter tokens", "texts in languages that the tokenizer was made for")
    slopes = (np.expm1(split.per_token) - degradation) / doublings
    fertility = np.log2(table.fertility)
    if np.ptp(fertility) == 0:
        raise TooFew("all languages need as many tokens", "languages that differ in it")
    design = np.column_stack([np.ones(len(fertility)), fertility, np.log(np.maximum(table.exposure, 1.0))])
    coefficients = np.linalg.lstsq(design, degradation, rcond=None)[0]
    residual = degradation - design @ coefficients
    independent = independent_pairs(fertility, degradation, table.families)
    require_independent(independent - 1)
    variance = residual @ residual / (len(residual) - 3) * np.linalg.inv(design.T @ design)[1, 1]
    adjusted_error = np.sqrt(variance * len(residual) / independent)
    set_error, _ = error_of_mean(slopes, table.families)
    return from_error(
        float(slopes.mean() - coefficients[1]),
        float(np.hypot(adjusted_error, set_error)),
        freedom=independent - 3,
        claim=IDENTIFIED,
        languages=len(slopes),
        independent=independent,
        note=f"By intervention {slopes.mean():+.3f}, by adjustment {coefficients[1]:+.3f} per doubling of tokens.",
    )


_PLACE = "Theory Development, Theory 4"
_NEEDS = ("profile", "split-profile")
CLAIMS = (
    Claim(
        "tokens-cause-loss",
        "P(D | do(T)): intervening on tokenization. Tokenization causes via SCM with testable predictions.",
        _PLACE,
        ("rtn-4", "split-tokens"),
        "The same text in more tokens loses more at 4 bits: the ratio of mean losses of the text, not per token, lies above 1.",
        _loss,
    ),
    Claim(
        "tokens-lower-alignment",
        "A = f₁(T): worse tokenization, less alignment.",
        _PLACE,
        _NEEDS,
        "The same text in more tokens is less aligned with English, which is not split: the mean change over languages lies below 0.",
        _alignment,
    ),
    Claim(
        "tokens-lower-redundancy",
        "R = f₂(A), A = f₁(T): worse tokenization, less redundancy.",
        _PLACE,
        _NEEDS,
        "The same text in more tokens has less spectral redundancy: the mean change over languages lies below 0.",
        _redundancy,
    ),
    Claim(
        "adjustment-identifies",
        "Cross-language: confounded (need do-calculus). P(D | do(T)).",
        _PLACE,
        ("profile", "rtn-4", "split-tokens"),
        "Back-door adjustment for exposure gives the effect of do(T) on D within 0.1 per doubling of tokens.",
        _identified,
    ),
)
