"""mT5: outliers in decoder attention."""

from __future__ import annotations

from laaciq.evaluation.theory import CLAIMED, GAUSSIAN_KURTOSIS
from laaciq.lab.claim import Claim
from laaciq.lab.claims.core import against_loss
from laaciq.lab.evidence import Evidence
from laaciq.lab.findings import Finding, NotApplicable
from laaciq.lab.rules import Claimed

DECODER = Claimed(statistic="r(decoder attention, D)", threshold=CLAIMED, side="below", claimed=-0.834)


def _decoder_attention(evidence: Evidence) -> Finding:
    table = evidence.profile
    needed = f"an encoder-decoder with outliers, such as mT5, whose largest κ exceeds {GAUSSIAN_KURTOSIS:g}"
    if table.kind != "encoder-decoder":
        raise NotApplicable(f"the model is {table.kind}", needed)
    if table.max_kurtosis < GAUSSIAN_KURTOSIS:
        raise NotApplicable(f"max κ is {table.max_kurtosis:.2f}", needed)
    return against_loss(evidence, "decoder_attention", "share of norms in decoder attention", DECODER)


CLAIMS = (
    Claim(
        "decoder-attention",
        "mT5 has outliers (κ=45) in decoder attention layers. "
        "If (C2) holds: expect r < −0.5 between decoder attention activation and degradation.",
        "Refined Theory, 3.3",
        ("profile", "rtn-4"),
        "In an encoder-decoder with max κ above 5: r(share of activation norms in decoder attention, D) lies below −0.5.",
        _decoder_attention,
    ),
)
