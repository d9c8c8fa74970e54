"""What measurements of one model give to claims: tidy arrays by language and block, and losses by candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from laaciq.corpus.families import family
from laaciq.corpus.languages import language
from laaciq.lab.findings import NotApplicable, Unanswered
from laaciq.profiling.results import Profile
from laaciq.trials.losses import Losses

# Attention of a decoder, in the names of encoder-decoder models of transformers.
_ATTENTION = ("attention", "attn")


@dataclass(frozen=True)
class ProfileTable:
    """The quantities of the theory, by language and by block. Arrays have a row per language of `codes`.

    `fractions` are ā_l(λ), (languages, blocks). `exposure` are tokens seen in training, `alignment` the mean cosine with English over blocks,
    `fertility` tokens over those of English (per byte, if texts are not parallel), `redundancy` the spectral one; NaN where they are not known.
    `weights_kurtosis` is the mean over tensors of κ(w ⊙ a(λ)). `top_shares` are of linear layers of the blocks: the share of magnitude in the
    largest 0.01, 0.1, 1, 5 and 10 %, averaged over layers by σ times the number of weights. `kurtosis_of` is by component.
    """

    codes: list[str]
    families: list[str]
    scripts: list[str]
    exposure: np.ndarray
    outlier_fraction: np.ndarray
    effective_kurtosis: np.ndarray
    weights_kurtosis: np.ndarray
    fractions: np.ndarray
    decoder_attention: np.ndarray
    fertility: np.ndarray
    alignment: np.ndarray
    redundancy: np.ndarray
    kurtosis: np.ndarray
    sigma: np.ndarray
    outlier_blocks: list[int]
    kurtosis_of: Mapping[str, float]
    top_shares: Mapping[str, float]
    super_weight_ratio: float
    kind: str

    @property
    def max_kurtosis(self) -> float:
        return float(self.kurtosis.max())

    def only(self, codes: Sequence[str]) -> ProfileTable:
        """Of these languages, in this order."""
        rows = [self.codes.index(code) for code in codes]
        chosen: dict[str, Any] = {
            name: getattr(self, name)[rows]
            for name in (
                *("exposure", "outlier_fraction", "effective_kurtosis", "weights_kurtosis", "fractions"),
                *("decoder_attention", "fertility", "alignment", "redundancy"),
            )
        }
        chosen |= {name: [getattr(self, name)[row] for row in rows] for name in ("families", "scripts")}
        return replace(self, codes=list(codes), **chosen)

    def require_outliers(self) -> None:
        if not self.outlier_blocks:
            raise NotApplicable(
                f"no block is an outlier block (max κ {self.max_kurtosis:.2f})",
                "a model with a block of κ above 50, or outliers planted by rescaling",
            )

    def require_exposure(self) -> None:
        if np.isnan(self.exposure).any():
            raise NotApplicable("tokens seen in training are not known by language", "a model that publishes them")


@dataclass(frozen=True)
class Evidence:
    """What was measured on one model, by the name of the measurement. What could not be measured is there as its reason."""

    model: str
    measured: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        found = self.measured[name]
        if isinstance(found, Unanswered):
            raise found
        return found

    @property
    def profile(self) -> ProfileTable:
        table: ProfileTable = self["profile"]
        return table

    def losses(self, name: str) -> Losses:
        found: Losses = self[name]
        return found

    def table(self, name: str) -> tuple[ProfileTable, np.ndarray]:
        """The profile of the languages that have losses under this candidate, and their D(λ) = exp(ΔNLL per token) − 1."""
        losses = self.losses(name)
        return self.profile.only(losses.codes), np.expm1(losses.per_token)


def profile_table(profile: Profile, codes: Sequence[str], exposure: Mapping[str, int] | None) -> ProfileTable:
    """The table of these languages."""
    chosen = [profile[code] for code in codes]
    tokens = {t.language: t for t in profile.tokenization}
    aligned = {a.language: float(np.mean(a.cosine)) for a in profile.alignment}
    linear = [t for t in profile.tensors if t.name in chosen[0].component_norms]
    magnitudes = np.array([t.count * t.sigma for t in linear])
    ratios = [t.super_weight_ratio for t in linear if t.super_weight_ratio is not None]
    return ProfileTable(
        codes=list(codes),
        families=[family(code) or code for code in codes],
        scripts=[language(code).script for code in codes],
        exposure=np.array([(exposure or {}).get(code, np.nan) for code in codes], dtype=float),
        outlier_fraction=np.array([r.outlier_fraction for r in chosen]),
        effective_kurtosis=np.array([r.effective_kurtosis for r in chosen]),
        weights_kurtosis=np.array([np.mean([w.kurtosis for w in r.effective_weights.values()]) for r in chosen]),
        fractions=np.array([r.fractions for r in chosen]),
        decoder_attention=np.array([_decoder_attention(r.component_norms) for r in chosen]),
        fertility=np.array([tokens[code].against_english or tokens[code].tokens_per_byte for code in codes]),
        alignment=np.array([aligned.get(code, np.nan) for code in codes]),
        redundancy=np.array([np.nan if (s := r.spectral_redundancy) is None else s.redundancy for r in chosen]),
        kurtosis=np.array([block.kurtosis for block in profile.blocks]),
        sigma=np.array([block.sigma for block in profile.blocks]),
        outlier_blocks=profile.outlier_blocks,
        kurtosis_of={component.component: component.kurtosis for component in profile.components},
        top_shares={
            percent: float(magnitudes @ [t.top_shares[percent] for t in linear] / magnitudes.sum())
            for percent in linear[0].top_shares
        },
        super_weight_ratio=max(ratios, default=1.0),
        kind=profile.architecture.kind,
    )


def _decoder_attention(norms: Mapping[str, float]) -> float:
    """The share of outputs' norms in attention layers of the decoder."""
    attention = [v for n, v in norms.items() if "decoder" in n and any(word in n.lower() for word in _ATTENTION)]
    return sum(attention) / sum(norms.values())
