"""Scripts, and English against all others."""

from __future__ import annotations

import numpy as np

from laaciq.lab.claim import Claim
from laaciq.lab.evidence import Evidence
from laaciq.lab.findings import Bars, Finding, NotApplicable, Points
from laaciq.lab.language_rules import others_against_one, ratio_of_groups
from laaciq.lab.rules import Claimed
from laaciq.stats.estimate import Estimate

NON_LATIN = Claimed(statistic="mean loss, other scripts over Latin", threshold=1.2, side="above", claimed=2.0)
FIRST_BLOCK = Claimed(statistic="ā₀ minus that of English", threshold=0.0, side="above", claimed=0.005)


def _non_latin(evidence: Evidence) -> Finding:
    losses = evidence.losses("rtn-4")
    table = evidence.profile.only(losses.codes)
    latin = np.array([script == "Latin" for script in table.scripts])
    groups = {"other scripts": losses.per_token[~latin], "Latin": losses.per_token[latin]}
    values = [
        Estimate(value=float(g.mean()), low=float(np.quantile(g, 0.25)), high=float(np.quantile(g, 0.75)))
        for g in groups.values()
        if len(g)
    ]
    plot = Bars(names=[n for n, g in groups.items() if len(g)], values=values, label="mean ΔNLL, and quartiles")
    return ratio_of_groups(losses.per_token[~latin], losses.per_token[latin], claim=NON_LATIN, plot=plot)


def _first_block(evidence: Evidence) -> Finding:
    table = evidence.profile
    if "eng" not in table.codes:
        raise NotApplicable("English was not measured", "texts with English")
    others = [code for code in table.codes if code != "eng"]
    chosen = table.only(others)
    english = float(table.only(["eng"]).fractions[0, 0])
    plot = Points(
        x=table.fractions[:, 0].tolist(), y=table.fractions[:, -1].tolist(), names=table.codes,
        x_label="activation fraction of the first block", y_label="activation fraction of the last block",
    )  # fmt: skip
    return others_against_one(chosen.fractions[:, 0], english, chosen.families, claim=FIRST_BLOCK, plot=plot)


CLAIMS = (
    Claim(
        "non-latin-scripts",
        "Non-Latin 1.2-3x worse.",
        "Phase 4, Integration with Literature",
        ("profile", "rtn-4"),
        "The mean ΔNLL of languages in other scripts, over that of languages in Latin script, lies above 1.2.",
        _non_latin,
    ),
    Claim(
        "first-block-not-english",
        "Non-English languages rely heavily on layer 0. English uses more distributed mid-to-late layers.",
        "Phase 4, EXP-036",
        ("profile",),
        "The mean ā₀(λ) of the other languages, minus that of English, lies above 0, and English lies outside of their spread.",
        _first_block,
    ),
)
