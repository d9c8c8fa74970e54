"""A comparison: one row per method, with the loss of each language and the size, or the reason why the method failed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from laaciq.engine.display import Displayed
from laaciq.evaluation import Evaluation, LanguageResult
from laaciq.evaluation.theory import TheoryFindings
from laaciq.strict import StrictModel


class Made(StrictModel):
    """How a quantized model was made. Bits per weight count everything, unquantized weights at 16, over the weights of the blocks and
    over the whole model. `left_alone` names linear layers of the blocks that were not quantized; `notes` are warnings.
    """

    by: str
    settings: str
    block_bits_per_weight: float
    model_bits_per_weight: float
    layers: int
    left_alone: list[str] = Field(default_factory=list)
    seconds: float
    notes: list[str] = Field(default_factory=list)


class Row(StrictModel):
    """One method, with `made` and `evaluation`, or with a `reason`. `missing` is set if a library is not installed."""

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
        """The served language with the largest loss, including collapsed ones."""
        served = [r for r in self.evaluation.worst_first if r.served] if self.evaluation else []
        return served[0] if served else None


class Comparison(Displayed, StrictModel):
    """`calibration` is as requested: 'all', a language code, or the path of texts. `theory` is what the losses of each measured method mean for
    the theory, by its name."""

    version: Literal[2] = 2
    model: str
    texts: str
    bits: int
    calibration: str
    passages: int
    languages: list[str]
    rows: list[Row]
    theory: dict[str, TheoryFindings]
    command: str

    def __getitem__(self, method: str) -> Row:
        return next(row for row in self.rows if row.method == method)

    @property
    def measured(self) -> list[Row]:
        """Measured rows, smallest loss of the worst-off language first; in the requested order if no language is served."""
        return sorted(
            (row for row in self.rows if row.reason is None), key=lambda row: row.worst.loss.value if row.worst else 0.0
        )

    @property
    def failed(self) -> list[Row]:
        return [row for row in self.rows if row.reason is not None]
