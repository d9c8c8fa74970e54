"""Where the largest weights lie. The weights are all there, so these figures are exact."""

from __future__ import annotations

from laaciq.lab.claim import Claim
from laaciq.lab.evidence import Evidence
from laaciq.lab.findings import Bars, Finding, NotApplicable
from laaciq.lab.rules import Claimed, exactly
from laaciq.stats.estimate import Estimate

# The models of the theory's table hold 0.13 to 0.62 % of magnitude there; a model with a few dominant weights would hold far more.
DENSE = Claimed(statistic="share of magnitude in the top 0.01 %", threshold=0.01, side="below", claimed=0.0026)
FIVE_PERCENT = Claimed(statistic="share of magnitude in the top 5 %", threshold=0.30, side="above", claimed=0.35)
TEN_PERCENT = Claimed(statistic="share of magnitude in the top 10 %", threshold=0.27, side="above", claimed=0.30)
SUPER_WEIGHT = Claimed(statistic="largest |w| over the second largest", threshold=2.9, side="below", claimed=1.5)
IN_ATTENTION = Claimed(statistic="κ of attention over κ of feed-forward", threshold=1.0, side="above", claimed=2.0)


def _top(evidence: Evidence, percent: str, claim: Claimed) -> Finding:
    shares = evidence.profile.top_shares
    values = [Estimate(value=share, low=share, high=share) for share in shares.values()]
    plot = Bars(names=[f"top {name} %" for name in shares], values=values, label="share of magnitude")
    return exactly(shares[percent], claim=claim, plot=plot)


def _in_attention(evidence: Evidence) -> Finding:
    evidence.profile.require_outliers()
    kurtosis = evidence.profile.kurtosis_of
    attention, others = kurtosis.get("attention"), kurtosis.get("feed-forward")
    if attention is None or others is None or others <= 0:
        raise NotApplicable("attention and feed-forward layers cannot be compared", "a model with both, of positive κ")
    return exactly(attention / others, claim=IN_ATTENTION)


_PLACE = "Phase 4, EXP-037"
CLAIMS = (
    Claim(
        "outliers-dense",
        "DENSE: all models have diffuse outliers. 0.01 % preservation captures only 0.1–0.6 % of magnitude.",
        _PLACE,
        ("profile",),
        "The top 0.01 % of the weights of a linear layer hold less than 1 % of its magnitude, averaged over layers by magnitude.",
        lambda evidence: _top(evidence, "0.01", DENSE),
    ),
    Claim(
        "top-5-percent",
        "5–10 % preservation is meaningful: it captures 30–45 % of magnitude.",
        _PLACE,
        ("profile",),
        "The top 5 % of the weights of a linear layer hold more than 30 % of its magnitude, averaged over layers by magnitude.",
        lambda evidence: _top(evidence, "5", FIVE_PERCENT),
    ),
    Claim(
        "top-10-percent",
        "Top 10 % magnitude: 27.28 to 45.19 %.",
        _PLACE,
        ("profile",),
        "The top 10 % of the weights of a linear layer hold more than 27 % of its magnitude, averaged over layers by magnitude.",
        lambda evidence: _top(evidence, "10", TEN_PERCENT),
    ),
    Claim(
        "no-super-weights",
        "Max SWR = 1.0–2.9: no dominant single weight in tested models.",
        "Phase 4, Integration with Literature",
        ("profile",),
        "In no linear layer is the largest weight more than 2.9 times the second largest.",
        lambda evidence: exactly(evidence.profile.super_weight_ratio, claim=SUPER_WEIGHT),
    ),
    Claim(
        "outliers-in-attention",
        "Outliers are in attention (3/3 HEAVY models).",
        "Phase 4, Confirmed",
        ("profile",),
        "In a model with outlier blocks, κ of all attention weights exceeds κ of all feed-forward weights.",
        _in_attention,
    ),
)
