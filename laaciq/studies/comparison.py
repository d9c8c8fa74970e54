"""A comparison: one row per method, with what each language lost and the size, or the reason why there is none."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from laaciq.engine.display import Displayed
from laaciq.evaluation import Evaluation, LanguageResult
from laaciq.strict import StrictModel


class Made(StrictModel):
    """How a quantized model came about. Bits a weight are counted in full, what was left alone at 16, over the linear layers of the blocks
    and over the whole model. `left_alone` names the linear layers of the blocks that were not quantized, `notes` what was warned of."""

    by: str
    settings: str
    block_bits_per_weight: float
    model_bits_per_weight: float
    layers: int
    left_alone: list[str] = Field(default_factory=list)
    seconds: float
    notes: list[str] = Field(default_factory=list)


class Row(StrictModel):
    """One method. It has `made` and `evaluation`, or else a `reason`; `missing` where that is a library that is not installed."""

    version: Literal[1] = 1
    method: str
    bits: int
    reads_text: bool
    made: Made | None = None
    evaluation: Evaluation | None = None
    reason: str | None = None
    missing: bool = False

    @property
    def worst(self) -> LanguageResult | None:
        """The served language that lost most, collapsed ones included."""
        served = [r for r in self.evaluation.worst_first if r.served] if self.evaluation else []
        return served[0] if served else None


class Comparison(Displayed, StrictModel):
    """`calibration` is as requested: 'all', a language's code, or where texts were."""

    version: Literal[1] = 1
    model: str
    texts: str
    bits: int
    calibration: str
    passages: int
    languages: list[str]
    rows: list[Row]
    command: str

    def __getitem__(self, method: str) -> Row:
        return next(row for row in self.rows if row.method == method)

    @property
    def measured(self) -> list[Row]:
        """Least loss of the worst-off language first; where no language is served, in the order requested."""
        return sorted(
            (row for row in self.rows if row.reason is None), key=lambda row: row.worst.loss.value if row.worst else 0.0
        )

    @property
    def failed(self) -> list[Row]:
        return [row for row in self.rows if row.reason is not None]
