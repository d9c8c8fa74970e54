"""Tokenization → alignment → redundancy → loss, by mediation and by back-door adjustment. Languages differ in much else: none of this is an
intervention.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from laaciq.lab.claim import Claim
from laaciq.lab.claims.redundancy import with_known
from laaciq.lab.evidence import Evidence
from laaciq.lab.findings import Finding, Points, TooFew
from laaciq.lab.language_rules import partial_correlation
from laaciq.lab.rules import Claimed, from_interval, require_languages
from laaciq.stats.bootstrap import BootstrapInterval
from laaciq.stats.estimate import Estimate
from laaciq.stats.mediation import Mediation, mediate

# Coefficients of standardised variables. Fertility is tokens over those of English: more is worse.
INDIRECT = Claimed(statistic="indirect effect of T on D", threshold=0.0, side="above", claimed=0.3)
CHAIN = Claimed(statistic="effect of T on D through A and R", threshold=0.0, side="above", claimed=0.2)
TOKENIZATION = Claimed(statistic="r(T, D | exposure)", threshold=0.0, side="above", claimed=0.5)
ALIGNMENT = Claimed(statistic="r(A, D | T, exposure)", threshold=0.0, side="below", claimed=-0.5)
REDUNDANCY = Claimed(statistic="r(R, D | A, exposure)", threshold=0.0, side="below", claimed=-0.5)
_DRAWS = 2000
_LABELS = {"fertility": "tokens over English", "alignment": "alignment A", "redundancy": "redundancy R"}


def _mediation(evidence: Evidence) -> tuple[Mediation, int]:
    table, degradation = with_known(*evidence.table("rtn-4"), "alignment", "redundancy")
    require_languages(len(table.codes))
    columns = [table.fertility, table.alignment, table.redundancy, degradation]
    if min(map(np.ptp, columns)) == 0:
        raise TooFew("a variable is the same in all languages", "languages that differ in it")
    cause, aligned, redundant, outcome = ((c - c.mean()) / c.std() for c in columns)
    try:
        found = mediate(cause, [aligned, redundant], outcome, clusters=table.families, draws=_DRAWS)
    except ValueError as error:
        raise TooFew(f"the mediation has no value in too many resamples ({error})", "more languages") from None
    return found, len(table.codes)


def _finding(part: BootstrapInterval, claim: Claimed, count: int, note: str) -> Finding:
    estimate = Estimate(value=part.value, low=min(part.value, part.low), high=max(part.value, part.high))
    return from_interval(estimate, claim=claim, languages=count, independent=part.units, note=note)


def _indirect(evidence: Evidence) -> Finding:
    found, count = _mediation(evidence)
    note = f"Total effect {found.total.value:.2f}, direct {found.direct.value:.2f}: mediated share {found.share:.2f}."
    return _finding(found.indirect, INDIRECT, count, note)


def _chain(evidence: Evidence) -> Finding:
    found, count = _mediation(evidence)
    return _finding(found.chain, CHAIN, count, "Product of the coefficients T → A, A → R and R → D.")


def _adjusted(evidence: Evidence, *, cause: str, parents: tuple[str, ...], claim: Claimed) -> Finding:
    """The effect of `cause` on D. Exposure and the cause's `parents` in the theory's graph block every back-door path."""
    table, degradation = evidence.table("rtn-4")
    table.require_exposure()
    table, degradation = with_known(table, degradation, cause, *parents)
    x, exposure = getattr(table, cause), np.log(np.maximum(table.exposure, 1.0))
    plot = Points(x=x.tolist(), y=degradation.tolist(), names=table.codes, x_label=_LABELS[cause], y_label="D")
    given = ", ".join([*(_LABELS[parent] for parent in parents), "the logarithm of training tokens"])
    return partial_correlation(
        x, degradation, np.column_stack([*(getattr(table, parent) for parent in parents), exposure]), table.families,
        claim=claim, plot=plot, note=f"Back-door adjustment for {given}.",
    )  # fmt: skip


_PLACE = "Theory Development, Theory 4"
CLAIMS = (
    Claim(
        "tokenization-mediated",
        "T → D is mediated by A and R. Tokenization mediates 42 % of effect.",
        _PLACE,
        ("profile", "rtn-4"),
        "The indirect effect of tokenization on D through alignment and redundancy lies above 0, families resampled together.",
        _indirect,
    ),
    Claim(
        "causal-chain",
        "T (tokenization quality) → A (alignment score) → R (redundancy) → D (disparity).",
        _PLACE,
        ("profile", "rtn-4"),
        "The product of the coefficients along T → A → R → D lies above 0, families resampled together.",
        _chain,
    ),
    Claim(
        "tokenization-adjusted",
        "Causal claim: T → D. Cross-language: confounded (need do-calculus).",
        _PLACE,
        ("profile", "rtn-4"),
        "The partial r(T, D) given exposure, which decides vocabulary and loss alike, lies above 0.",
        partial(_adjusted, cause="fertility", parents=(), claim=TOKENIZATION),
    ),
    Claim(
        "alignment-adjusted",
        "P(D | do(A)): intervening on alignment.",
        _PLACE,
        ("profile", "rtn-4"),
        "The partial r(A, D) given T and exposure, which block every back-door path from A to D in the theory's graph, lies below 0.",
        partial(_adjusted, cause="alignment", parents=("fertility",), claim=ALIGNMENT),
    ),
    Claim(
        "redundancy-adjusted",
        "P(D | do(R)): intervening on redundancy.",
        _PLACE,
        ("profile", "rtn-4"),
        "The partial r(R, D) given A and exposure, which block every back-door path from R to D in the theory's graph, lies below 0.",
        partial(_adjusted, cause="redundancy", parents=("alignment",), claim=REDUNDANCY),
    ),
)
