"""The share of weights that is worth keeping in 16 bits."""

from __future__ import annotations

from functools import partial

from laaciq.lab.claim import Claim
from laaciq.lab.evidence import Evidence
from laaciq.lab.findings import Bars, Finding
from laaciq.lab.language_rules import mean_loss_ratio
from laaciq.lab.measurements.candidates import KEPT
from laaciq.lab.rules import Claimed

INSUFFICIENT = Claimed(statistic="mean loss ratio", threshold=0.9, side="above", claimed=1.0)
# "30-45 % of outlier magnitude preserved": a loss smaller by 30 %, held against half of that.
MEANINGFUL = Claimed(statistic="mean loss ratio", threshold=0.85, side="below", claimed=0.65)
_NAMES = tuple(f"keep-{share:g}" for share in KEPT)


def _kept(evidence: Evidence, name: str, claim: Claimed) -> Finding:
    baseline = evidence.losses("rtn-4")
    finding = mean_loss_ratio(evidence.losses(name), baseline, claim=claim, names=(name, "rtn-4"))
    swept = [baseline.mean(), *(evidence.losses(other).mean() for other in _NAMES)]
    return finding.model_copy(
        update={"plot": Bars(names=["none kept", *_NAMES], values=swept, label="mean ΔNLL per token")}
    )


_NEEDS = ("rtn-4", *_NAMES)
CLAIMS = (
    Claim(
        "keep-0.01-percent",
        "0.01 % preservation is insufficient.",
        "Phase 4, EXP-037",
        _NEEDS,
        "Mean ΔNLL at 4 bits with the top 0.01 % in 16 bits, over that with none, lies above 0.9.",
        partial(_kept, name="keep-0.01", claim=INSUFFICIENT),
    ),
    Claim(
        "keep-1-percent",
        "1 % preservation is marginal — captures 4-13 % of magnitude.",
        "Phase 4, EXP-037",
        _NEEDS,
        "Mean ΔNLL at 4 bits with the top 1 % in 16 bits, over that with none, lies above 0.9.",
        partial(_kept, name="keep-1", claim=INSUFFICIENT),
    ),
    Claim(
        "keep-10-percent",
        "5-10 % preservation is meaningful — captures 30-45 % of magnitude.",
        "Phase 4, EXP-037",
        _NEEDS,
        "Mean ΔNLL at 4 bits with the top 10 % in 16 bits, over that with none, lies below 0.85 (half of a decrease of 30 %).",
        partial(_kept, name="keep-10", claim=MEANINGFUL),
    ),
)
