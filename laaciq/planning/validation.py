"""What a plan really costs each language: quantized in memory, measured on validation text."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from laaciq.corpus import Texts
from laaciq.models import LanguageModel
from laaciq.options import MeasureOptions
from laaciq.planning.results import PlanLosses
from laaciq.quantization import Calibration
from laaciq.quantization.calibration import Rounded
from laaciq.quantization.plan import Plan
from laaciq.quantization.tuning import quantize_model
from laaciq.scoring.likelihood import score
from laaciq.scoring.sequences import ScoredPassage, prepare_all
from laaciq.trials.quantized_copy import copy_of, simulate


@dataclass
class Validation:
    """Measures plans, each quantized in memory. `rounded` has the layers of the latest."""

    model: LanguageModel
    texts: Texts
    options: MeasureOptions
    rounded: Rounded = field(default_factory=Rounded, init=False)
    _twin: LanguageModel | None = field(default=None, init=False)
    _prepared: list[ScoredPassage] = field(default_factory=list, init=False)

    def measure(self, plan: Plan, calibration: Calibration | None) -> PlanLosses:
        if self._twin is None:
            self._twin = copy_of(self.model)
            asked = self.options.model_dump(include={"window", "chat", "seed"})
            for passages in self.texts.by_language.values():
                self._prepared += prepare_all(self.model, passages.texts, passages.language, **asked)
        found_layers, others = quantize_model(self.model, plan, calibration)
        layers = list(found_layers)
        self.rounded.keep(plan, layers)
        simulate(self.model, self._twin, layers, others=others)
        found = score(self.model, self._twin, self._prepared)
        owner = np.repeat(np.arange(len(self.texts.languages)), [len(self.texts[c]) for c in self.texts.languages])
        tokens = np.bincount(owner, found.tokens)
        rise = np.bincount(owner, found.quantized_nll - found.original_nll) / tokens
        return PlanLosses(divergence=(np.bincount(owner, found.kl) / tokens).tolist(), rise=rise.tolist())
