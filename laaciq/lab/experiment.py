"""An experiment: the measurements that claims need, made on one model, and what each claim makes of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from laaciq.errors import BadOption
from laaciq.lab.claim import Claim
from laaciq.lab.claims import CLAIMS
from laaciq.lab.evidence import Evidence
from laaciq.lab.findings import Unanswered
from laaciq.lab.measurements import MEASUREMENTS, Bench, Measurement
from laaciq.lab.verdicts import Answer


def find_claims(names: Iterable[str] | None) -> list[Claim]:
    """The named claims, each once; by default all of them."""
    if names is None:
        return list(CLAIMS.values())
    for name in names:
        if name not in CLAIMS:
            near = difflib.get_close_matches(name, CLAIMS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "'laaciq lab list' shows all claims"
            raise BadOption(f"unknown claim {name!r}: {hint}")
    return [CLAIMS[name] for name in dict.fromkeys(names)]


def needed_measurements(claims: Sequence[Claim]) -> list[Measurement]:
    """In the order of the registry, each once."""
    needs = {name for claim in claims for name in claim.needs}
    return [measurement for name, measurement in MEASUREMENTS.items() if name in needs]


def announce(bench: Bench, claims: Sequence[Claim]) -> None:
    """Print what will be measured, and its estimated cost."""
    session, needed = bench.session, needed_measurements(claims)
    session.announce(
        f"Testing {len(claims)} claims on {session.folder.name}, with {len(needed)} measurements.",
        [session.costs.loading(), *(measurement.cost(bench) for measurement in needed)],
    )


def gather(bench: Bench, claims: Sequence[Claim]) -> Evidence:
    """The evidence for these claims. What is in the store already is not measured again."""
    measured: dict[str, object] = {}
    for measurement in needed_measurements(claims):
        try:
            measured[measurement.name] = measurement.measure(bench)
        except Unanswered as reason:
            measured[measurement.name] = reason
    return Evidence(bench.session.folder.name, measured)


def answers(claims: Sequence[Claim], evidence: Evidence) -> Mapping[str, Answer]:
    """What the evidence says about each claim."""
    return {claim.name: _answer(claim, evidence) for claim in claims}


def _answer(claim: Claim, evidence: Evidence) -> Answer:
    try:
        return claim.decide(evidence)
    except Unanswered as reason:
        return reason
