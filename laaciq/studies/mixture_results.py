"""The `MixtureStudy`: losses of each language by the calibration text of second-order rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from laaciq.engine.display import Displayed
from laaciq.evaluation import Disparity, Estimate
from laaciq.options import Bits, GroupSize
from laaciq.strict import StrictModel
from laaciq.studies.mixes import Mix, mix_name

if TYPE_CHECKING:
    import pandas


class Setting(StrictModel):
    """One quantization. `passages` is the largest number of any language, `tokens` the number of all that were read, `weights` the weight
    of each language.

    `validation` is KL(original ‖ quantized) per token on validation text, the basis of all choices; everything else is ΔNLL in nats per
    token on test text. `disparity` is None if a language collapsed or fewer than two are left.
    """

    mix: Mix
    passages: int
    tokens: int
    weights: dict[str, float]
    validation: dict[str, float]
    loss: dict[str, Estimate]
    worst_language: str
    worst: Estimate
    mean: Estimate
    disparity: Disparity | None


class LeftOut(StrictModel):
    """One language with all languages weighted equally, and with its text left out; `rise` is the paired difference."""

    language: str
    with_text: Estimate
    without_text: Estimate
    rise: Estimate


class Recommendation(StrictModel):
    """`mix` is the simplest mix within noise of the best. `passages` is the fewest from which on its worst loss is within noise of that
    with all passages. Both use the paired difference on validation text. `against_all` is that difference on test text; `only_against`
    is the extra loss of the worst language if all text of one language is used instead.
    """

    mix: Mix
    passages: int
    tokens: int
    against_all: Estimate
    only_against: Estimate
    sentence: str


class MixtureStudy(Displayed, StrictModel):
    """Every mix with every number of passages, in `settings`. Minimax weights were computed with all passages; of their `rounds` the best
    was kept. Languages that the original does not serve on validation text are listed and otherwise left out.
    """

    version: Literal[1] = 1
    model: str
    texts: str
    bits: Bits
    group_size: GroupSize
    symmetric: bool
    only: str
    languages: list[str]
    not_served: list[str]
    validation_passages: int
    test_passages: int
    rounds: list[dict[str, float]]
    settings: list[Setting]
    left_out: list[LeftOut]
    recommendation: Recommendation

    def of(self, mix: Mix, passages: int) -> Setting:
        return next(setting for setting in self.settings if (setting.mix, setting.passages) == (mix, passages))

    @property
    def most(self) -> int:
        """The largest number of passages."""
        return max(setting.passages for setting in self.settings)

    def name(self, mix: Mix) -> str:
        return mix_name(mix, self.only)

    def frame(self) -> pandas.DataFrame:
        """A pandas table with one row per setting; losses become columns such as `loss.swa.value`."""
        from laaciq.frames import flat_frame

        return flat_frame([setting.model_dump() for setting in self.settings])
