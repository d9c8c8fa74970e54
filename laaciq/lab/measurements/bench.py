"""A bench: the session of one model, and the text that the lab measures it on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from laaciq.corpus import Texts
from laaciq.lab.evidence import ProfileTable, profile_table
from laaciq.lab.findings import TooFew
from laaciq.planning.rules import served_languages
from laaciq.profiling.results import Profile
from laaciq.studies.texts import require_documents, shortened
from laaciq.trials.candidate import Candidate
from laaciq.trials.estimate import StageCost
from laaciq.trials.losses import Losses
from laaciq.trials.measurement import Measurement as LanguageLosses
from laaciq.trials.session import Session

# With --quick: passages per language and tokens of each, for losses and for sets of blocks; and calibration passages to profile.
QUICK_PASSAGES, QUICK_TOKENS = 12, 48
QUICK_SET_PASSAGES, SET_PASSAGES, SET_TOKENS = 4, 10, 32
QUICK_PROFILED = 4


@dataclass
class Bench:
    """`exposure` are tokens seen in training by language, if known."""

    session: Session
    quick: bool
    exposure: Mapping[str, int] | None = None

    @cached_property
    def profile(self) -> Profile:
        return self.session.profile(self.profiled)

    @property
    def profiled(self) -> Texts:
        calibration = self.session.split.calibration
        return calibration.spread(QUICK_PROFILED) if self.quick else calibration

    @cached_property
    def table(self) -> ProfileTable:
        return profile_table(self.profile, self.served, self.exposure)

    @cached_property
    def served(self) -> list[str]:
        """The languages that the original serves on the text that is profiled."""
        return served_languages(self.profile, self.session.options.served_bound)

    @cached_property
    def test(self) -> Texts:
        """Test text of the languages that the original serves."""
        texts = self._test.select(self.served)
        require_documents(texts, "test", self.session.progress)
        return texts

    @property
    def _test(self) -> Texts:
        test = self.session.split.test
        if not self.quick:
            return test
        return shortened(self.session.costs.model, test, passages=QUICK_PASSAGES, tokens=QUICK_TOKENS)

    @cached_property
    def served_on_test(self) -> list[str]:
        """The languages that the original serves on test text too: the bound may lie between what it needs for two texts."""
        original, bound = self.session.original_losses(self.test), self.session.options.served_bound
        served = [code for code, losses in original.items() if losses.bits_per_byte <= bound]
        if not served:
            raise TooFew(
                "no language is served on test text", "a larger --served-bound, or a model that serves these languages"
            )
        return served

    @property
    def measured(self) -> list[str]:
        """The languages that findings are about: those served on test text, if losses were measured there."""
        return self.served_on_test if "served_on_test" in vars(self) else self.served

    @cached_property
    def sets_text(self) -> Texts:
        """Short test text of the languages that the original serves, for many sets of blocks."""
        return self.sets_sample.select(self.served_on_test)

    @cached_property
    def sets_sample(self) -> Texts:
        passages = QUICK_SET_PASSAGES if self.quick else SET_PASSAGES
        return shortened(self.session.costs.model, self.session.split.test, passages=passages, tokens=SET_TOKENS)

    def losses(self, candidate: Candidate) -> Losses:
        """What a candidate loses on test text, by language."""
        return self.losses_of(self.session.losses(candidate, self.test))

    def losses_of(self, measured: Mapping[str, LanguageLosses]) -> Losses:
        """What was measured on test text, of the languages that are served there."""
        served = {code: measured[code] for code in self.served_on_test}
        return Losses.measured(served, parallel=self.test.parallel, seed=self.session.options.seed)

    # Costs, before anything is measured

    def profile_cost(self) -> StageCost:
        return self.session.costs.profiling(self.profiled)

    def losses_cost(self) -> StageCost:
        """Of one candidate; the original is measured once for all."""
        both = self.session.costs.measuring(self._test)
        return replace(both, seconds=both.seconds / 2)


@dataclass(frozen=True)
class Measurement:
    """A named measurement, shared by claims. `measure` may raise `Unanswered`: then claims that need it have no answer either."""

    name: str
    describes: str
    measure: Callable[[Bench], object]
    cost: Callable[[Bench], StageCost] = Bench.losses_cost
