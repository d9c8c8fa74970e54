"""Losses over several draws of calibration text: by language, and resampled over test passages and draws together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from laaciq.stats.bootstrap import resampled_ratios


@dataclass(frozen=True)
class DrawnLosses:
    """ΔNLL by draw, language and passage, (draws, languages, passages), and the tokens of each language's passages."""

    loss: np.ndarray
    tokens: np.ndarray

    @property
    def per_language(self) -> np.ndarray:
        """A token, the mean over draws."""
        return self.loss.sum(2).mean(0) / self.tokens.sum(1)

    def resampled(self, counts: np.ndarray, draw: np.ndarray) -> np.ndarray:
        """ΔNLL a token, (resamples, languages): each resample takes passages, `counts` times each, and one draw."""
        by_draw = np.stack(
            [
                np.stack([resampled_ratios(a, t, counts) for a, t in zip(own, self.tokens, strict=True)], 1)
                for own in self.loss
            ]
        )
        return by_draw[draw % len(by_draw), np.arange(len(counts))]
