"""Which experts a language uses: the share of its tokens that the router sends to each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from laaciq.models import Anatomy
from laaciq.profiling.results import Profile


def routing_shares(anatomy: Anatomy, tokens: Mapping[str, int]) -> dict[str, list[float]]:
    """Shares by the path of a mixture of experts, from the `tokens` that each linear layer read. All zero if there were none."""
    read: dict[str, dict[int, int]] = {}
    for linear in anatomy.linears:
        if linear.experts is not None and linear.expert is not None:
            read.setdefault(linear.experts, {})[linear.expert] = tokens[linear.name]
    return {
        experts: [count / max(sum(counts.values()), 1) for _, count in sorted(counts.items())]
        for experts, counts in read.items()
    }


def block_of(path: str) -> str:
    """The number of the block in the path of its experts."""
    return next((part for part in path.split(".") if part.isdecimal()), path)


@dataclass(frozen=True)
class LanguageRouting:
    """How differently one language uses the experts. `distance` is the share of its tokens that would have to go to other experts for it to
    use them as the mean language does, ½·Σ|s_e(λ) − s̄_e|, averaged over mixtures. `idle` is the share of experts that none of its tokens goes
    to. `most_used` names the expert that it uses most beyond the mean.
    """

    language: str
    distance: float
    idle: float
    most_used: str


def language_routings(profile: Profile) -> list[LanguageRouting]:
    """One per language, the most different first; empty if the model has no experts."""
    paths = list(profile.languages[0].routing)
    if not paths:
        return []
    shares = {r.language: [np.array(r.routing[path]) for path in paths] for r in profile.languages}
    means = [np.mean(by_language, axis=0) for by_language in zip(*shares.values(), strict=True)]
    results = []
    for code, by_mixture in shares.items():
        distances = [np.abs(share - mean).sum() / 2 for share, mean in zip(by_mixture, means, strict=True)]
        idle = np.mean(np.concatenate(by_mixture) == 0)
        more = [share - mean for share, mean in zip(by_mixture, means, strict=True)]
        mixture = int(np.argmax([excess.max() for excess in more]))
        expert = int(more[mixture].argmax())
        points = f"{100 * more[mixture][expert]:+.1f} points"
        words = f"block {block_of(paths[mixture])}, expert {expert}: {points}"
        results.append(LanguageRouting(code, float(np.mean(distances)), float(idle), words))
    return sorted(results, key=lambda result: -result.distance)
