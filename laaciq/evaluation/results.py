"""The `Evaluation`: what quantization cost each language, and how unequally. Written to disk and read back without loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from laaciq.engine.display import Displayed
from laaciq.stats.estimate import Estimate
from laaciq.strict import LanguageCode, StrictModel

if TYPE_CHECKING:
    import pandas


_Count = Annotated[int, Field(ge=1)]
_Share = Annotated[float, Field(ge=0, le=1)]


class Likelihood(StrictModel):
    """How well one model predicts one language's text."""

    nll_per_token: float
    perplexity: float
    bits_per_byte: float


class LanguageResult(StrictModel):
    """One language. `degradation` is D(λ) = exp(ΔNLL per token) − 1, None where the language collapsed.

    `relative_bits` is ΔNLL/NLL, the relative increase in bits per byte; `bits_per_passage` is Δbits for the same content, on parallel
    text only. `p` tests that nothing is lost or gained; None for one document, whose noise is unknown. `hurt`: the loss is beyond noise,
    its interval lies above zero, which is p < 0.05. `hurt_corrected`: it still is after Benjamini and Hochberg's correction of p for the number
    of served languages.
    """

    language: LanguageCode
    name: str
    script: str
    passages: _Count
    documents: _Count
    tokens: _Count
    bytes: _Count
    original: Likelihood
    quantized: Likelihood
    loss: Estimate
    degradation: Estimate | None
    relative_bits: Estimate
    bits_per_passage: Estimate | None
    kl_per_token: Annotated[float, Field(ge=0)]
    top_agreement: _Share
    served: bool
    collapsed: bool
    p: _Share | None
    hurt: bool
    hurt_corrected: bool

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.degradation is None) != self.collapsed:
            raise ValueError("a language has a degradation exactly if it did not collapse")
        if self.hurt_corrected and not self.hurt:
            raise ValueError("a loss that is within noise is beyond noise after a correction")
        if self.documents > self.passages:
            raise ValueError("a language has more documents than passages")
        for estimate in (self.loss, self.degradation, self.relative_bits, self.bits_per_passage):
            if estimate is not None and (estimate.low > estimate.value or estimate.value > estimate.high):
                raise ValueError("an interval does not hold its estimate")
        return self

    @property
    def judged(self) -> bool:
        """True if disparity and rankings include the language: served and not collapsed."""
        return self.served and not self.collapsed


class Disparity(StrictModel):
    """How unequal the losses are: max D − min D over the languages that are served and did not collapse.

    `worst` is the largest D of any language, with the interval of a maximum: the language that came out worst need not be the worst.
    `plug_in` is the observed value with its interval, which alone decides whether languages differ beyond noise. `noise_floor` is the
    largest value that noise explains: languages differ beyond noise exactly if `plug_in` exceeds it. `cross_fitted` and
    `cross_fitted_worst` (D of the worst language) choose worst and best on one half of the documents and estimate on the other.
    `between_deviation` is τ. `heterogeneity_p` tests that all languages are equal, by the variance of D between languages against its
    distribution under equal means.
    """

    worst: Estimate
    plug_in: Estimate
    noise_floor: float
    cross_fitted: float
    cross_fitted_worst: float
    between_deviation: float
    heterogeneity_p: _Share
    worst_language: str
    best_language: str

    @property
    def beyond_noise(self) -> bool:
        """True if the interval lies above zero."""
        return self.plug_in.low > 0


class Summary(StrictModel):
    """All languages together. Averages are taken over ΔNLL per token and then converted to D, never over D.

    `mean` and `worst_quarter` are None if no language is judged. `hurt_share`, `hurt_corrected_share` and `half_loss_passage_share` (the
    smallest share of passages that accounts for half of all losses) are None if none is served.
    `worst_by` names the worst language by each measure.
    """

    mean: float | None
    worst_quarter: float | None
    worst_quarter_languages: list[str]
    hurt_share: float | None
    hurt_corrected_share: float | None
    half_loss_passage_share: float | None
    collapsed: list[str]
    not_served: list[str]
    rankings_agree: bool
    worst_by: dict[str, str]


class Evaluation(Displayed, StrictModel):
    """A quantized model against its original, by language."""

    version: Literal[3] = 3
    original: str
    quantized: str
    texts: str
    parallel: bool
    served_bound: float
    languages: list[LanguageResult] = Field(min_length=1)
    disparity: Disparity | None
    summary: Summary
    verdict: str

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        codes = [result.language for result in self.languages]
        judged = {result.language for result in self.judged}
        if len(set(codes)) < len(codes):
            raise ValueError("a language is there twice")
        if (self.disparity is None) != (len(judged) < 2):
            raise ValueError("there is a disparity exactly if at least two languages are served and did not collapse")
        named = {self.disparity.worst_language, self.disparity.best_language} if self.disparity else set()
        named |= {*self.summary.worst_quarter_languages, *self.summary.worst_by.values()}
        if strange := named - judged:
            raise ValueError(f"{min(strange)} is among the worst or the best languages, and is not one that is judged")
        for state, listed in (("collapsed", self.summary.collapsed), ("not served", self.summary.not_served)):
            if set(listed) != {r.language for r in self.languages if _state(r) == state}:
                raise ValueError(f"the list of languages that are {state} is not that of their results")
        return self

    def __getitem__(self, code: str) -> LanguageResult:
        return next(result for result in self.languages if result.language == code)

    @property
    def worst_first(self) -> list[LanguageResult]:
        """All languages by loss, largest first; languages that are not served come last."""
        return sorted(self.languages, key=lambda r: (not r.served, -r.loss.value))

    @property
    def fewest_documents(self) -> int:
        """Smallest number of documents of a served language; 0 if none is served."""
        return min((r.documents for r in self.languages if r.served), default=0)

    @property
    def worst(self) -> Estimate | None:
        """The largest D of any judged language, with its interval; None if no language is judged."""
        if self.disparity is not None:
            return self.disparity.worst
        return self.judged[0].degradation if self.judged else None

    @property
    def judged(self) -> list[LanguageResult]:
        """The languages in disparity and rankings: served and not collapsed, worst first."""
        return [r for r in self.worst_first if r.judged]

    def frame(self) -> pandas.DataFrame:
        """A pandas table with one row per language; intervals become columns such as `degradation.low`."""
        from laaciq.frames import flat_frame

        return flat_frame([result.model_dump() for result in self.languages])


def _state(result: LanguageResult) -> str:
    if not result.served:
        return "not served"
    return "collapsed" if result.collapsed else "judged"
