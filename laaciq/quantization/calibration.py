"""What a method may know of the languages: how strongly each uses the inputs of every linear layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from laaciq.corpus import Texts
from laaciq.errors import BadOption
from laaciq.models import LanguageModel, LinearLayer
from laaciq.options import MeasureOptions
from laaciq.profiling.activations import blocks_in_encoder, mask_for, read_masks, readings
from laaciq.profiling.results import Profile
from laaciq.quantization.grid import Layers
from laaciq.quantization.plan import Plan
from laaciq.scoring.likelihood import batch_tokens, batches, read_through


@dataclass(frozen=True)
class TensorCalibration:
    """For one tensor. `mean_squares` is E[x_j²] by language, (languages, inputs), each language scaled to mean one: what counts is which
    inputs a language uses, not how loud it is. `effective_kurtosis` is the languages' mean κ_eff."""

    mean_squares: torch.Tensor
    effective_kurtosis: float


class Rounded:
    """A plan's layers on their way from where plans are tried to where the chosen one is tuned and written, so that it is rounded once."""

    def __init__(self) -> None:
        self._kept: tuple[Plan, Layers] | None = None

    def keep(self, plan: Plan, layers: Layers) -> None:
        """In place of any others: they take about a byte a weight."""
        self._kept = plan, layers

    def take(self, plan: Plan) -> Layers | None:
        """None where this plan's are not here."""
        if self._kept is None or self._kept[0] != plan:
            return None
        layers, self._kept = self._kept[1], None
        return layers


@dataclass(frozen=True)
class Calibration:
    """A profile, the calibration text that it was made from, and validation text that nothing is fitted to: what is chosen is chosen on it.
    Second-order rounding reads the calibration text alone, and needs no profile. `rounded` is what planning has left of it."""

    profile: Profile | None
    texts: Texts
    options: MeasureOptions
    validation: Texts | None = None
    rounded: Rounded = field(default_factory=Rounded, compare=False, repr=False)

    def validating(self, languages: list[str]) -> Texts:
        """Validation text of these languages, at least a passage of each."""
        if self.validation is None:
            raise BadOption("plans and epochs of tuning are chosen on validation text: give texts that are split")
        found = self.validation.select(languages)
        for code, passages in found.by_language.items():
            if not len(passages):
                raise BadOption(f"too little text in {code} to set some aside for validation: give more passages")
        return found

    def of(self, tensor: str, languages: list[str], device: torch.device) -> TensorCalibration:
        if self.profile is None:
            raise BadOption("this method weighs inputs by a profile of the model: make one of the same texts first")
        chosen = [self.profile[code] for code in languages]
        squares = np.stack([activations.input_mean_squares(tensor) for activations in chosen])
        relative = torch.tensor(squares / np.maximum(squares.mean(1, keepdims=True), 1e-30), dtype=torch.float32)
        return TensorCalibration(relative.to(device), float(np.mean([a.effective_kurtosis for a in chosen])))

    @torch.inference_mode()
    def second_moments(
        self, model: LanguageModel, linears: list[LinearLayer], languages: list[str]
    ) -> dict[str, torch.Tensor]:
        """E[xxᵀ] of the layers' inputs over all tokens that are read, by tensor; the mean over the languages."""
        found: dict[str, torch.Tensor] = {}
        for code in languages:
            for name, moments in self._of_language(model, linears, code).items():
                found[name] = found[name] + moments / len(languages) if name in found else moments / len(languages)
        return found

    def _of_language(self, model: LanguageModel, linears: list[LinearLayer], code: str) -> dict[str, torch.Tensor]:
        sums: dict[str, torch.Tensor] = {}
        tokens: dict[str, float] = {}
        encoder = blocks_in_encoder(model)
        masks: dict[bool, torch.Tensor] = {}
        last: list[Any] = [None, None, 0.0]

        def watch(linear: LinearLayer) -> Callable[..., None]:
            def hook(module: Any, inputs: Any, output: Any) -> None:
                entering = inputs[0]
                # Query, key and value, or gate and up, read the same tensor: its moments are summed once.
                if last[0] is not entering:
                    mask = mask_for(entering, masks, encoder[linear.block])
                    rows = entering.reshape(len(mask), -1)[mask > 0].float()
                    last[:] = [entering, rows.T @ rows, float(len(rows))]
                sums[linear.name] = sums[linear.name] + last[1] if linear.name in sums else last[1]
                tokens[linear.name] = tokens.get(linear.name, 0.0) + last[2]

            return hook

        handles = [linear.module.register_forward_hook(watch(linear)) for linear in linears]
        try:
            for _, sequences in batches(readings(model, self.texts[code], self.options), batch_tokens(model)):
                masks |= read_masks(model, sequences)
                last[0] = None
                read_through(model, sequences)
        finally:
            for handle in handles:
                handle.remove()
        return {name: total / max(tokens[name], 1.0) for name, total in sums.items()}
