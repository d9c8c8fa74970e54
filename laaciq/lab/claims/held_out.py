"""Held-out languages: fitted on some families, does the theory predict the others?"""

from __future__ import annotations

import numpy as np

from laaciq.lab.claim import Claim
from laaciq.lab.claims.redundancy import with_known
from laaciq.lab.evidence import Evidence
from laaciq.lab.findings import Finding, Points
from laaciq.lab.language_rules import prediction_gain
from laaciq.lab.prediction import held_out_predictions
from laaciq.lab.rules import Claimed, require_languages

GAIN = Claimed(statistic="squared error removed", threshold=0.0, side="above", claimed=0.5)
_FEATURES = ("outlier_fraction", "effective_kurtosis", "fertility", "alignment", "redundancy")


def _held_out(evidence: Evidence) -> Finding:
    table, degradation = with_known(*evidence.table("rtn-4"), "alignment", "redundancy")
    require_languages(len(table.codes))
    features = np.column_stack([getattr(table, name) for name in _FEATURES])
    predicted, mean = held_out_predictions(features, degradation, table.families)
    plot = Points(x=predicted.tolist(), y=degradation.tolist(), names=table.codes, x_label="predicted D", y_label="D")
    return prediction_gain(degradation, predicted, mean, table.families, claim=GAIN, plot=plot)


CLAIMS = (
    Claim(
        "held-out-families",
        "Test predictions against held-out languages.",
        "Theory Development, Phase 2",
        ("profile", "rtn-4"),
        "A regression of D on R̂, κ_eff, tokenization, alignment and redundancy, fitted on all other families, "
        "predicts a family better than the mean "
        "of the others: it removes more than 0 of the squared error.",
        _held_out,
    ),
)
