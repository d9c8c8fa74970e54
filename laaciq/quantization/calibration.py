"""Calibration data: how strongly each language uses the inputs of every linear layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from laaciq.corpus import Texts
from laaciq.errors import BadOption
from laaciq.options import MeasureOptions
from laaciq.profiling.results import Profile


@dataclass(frozen=True)
class TensorCalibration:
    """Calibration of one tensor. `mean_squares` is E[x_j²] by language, (languages, inputs), each language scaled to mean one: it shows
    which inputs a language uses, not their magnitude. `effective_kurtosis` is the mean κ_eff of the languages.
    """

    mean_squares: torch.Tensor
    effective_kurtosis: float


@dataclass(frozen=True)
class Calibration:
    """A profile, the calibration text, and validation text, which nothing is fitted to and choices are made on. Second-order rounding reads
    only the calibration text and needs no profile.
    """

    profile: Profile | None
    texts: Texts
    options: MeasureOptions
    validation: Texts | None = None

    def validation_texts(self, languages: list[str]) -> Texts:
        """Validation text of these languages; an error if a language has none."""
        if self.validation is None:
            raise BadOption("plans and tuning epochs are chosen on validation text: give texts with a validation part")
        texts = self.validation.select(languages)
        for code, passages in texts.by_language.items():
            if not len(passages):
                raise BadOption(f"too little text in {code} to set some aside for validation: give more passages")
        return texts

    def of(self, tensor: str, languages: list[str], device: torch.device) -> TensorCalibration:
        if self.profile is None:
            raise BadOption("this method needs a profile of the model: profile it on the same texts first")
        chosen = [self.profile[code] for code in languages]
        squares = np.stack([activations.input_mean_squares(tensor) for activations in chosen])
        if not squares.any():  # an expert that no token was sent to: all inputs count alike
            squares = np.ones_like(squares)
        relative = torch.tensor(squares / np.maximum(squares.mean(1, keepdims=True), 1e-30), dtype=torch.float32)
        return TensorCalibration(relative.to(device), float(np.mean([a.effective_kurtosis for a in chosen])))
