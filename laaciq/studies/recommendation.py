"""The recommended mix and number of tokens: chosen on validation text, reported with losses on test text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from laaciq.corpus import language
from laaciq.evaluation.degradation import COLLAPSE_FACTOR
from laaciq.evaluation.verdict import percent
from laaciq.stats.estimate import Estimate
from laaciq.studies.mixes import MIXES, Mix, mix_name
from laaciq.studies.mixture_results import LeftOut
from laaciq.trials.losses import Losses

Key = tuple[Mix, int]


@dataclass(frozen=True)
class Choice:
    mix: Mix
    passages: int

    @property
    def key(self) -> Key:
        return self.mix, self.passages


def choose(validation: Mapping[Key, Losses]) -> Choice:
    """The simplest mix, and the fewest passages, within noise of the best."""
    numbers = sorted({passages for _, passages in validation}, reverse=True)
    most = numbers[0]
    best = min(MIXES, key=lambda mix: validation[mix, most].per_token.max())

    def as_good(left: Key, right: Key) -> bool:
        return validation[left].worst_difference(validation[right]).low <= 0

    mix = next(mix for mix in MIXES if as_good((mix, most), (best, most)))
    # From there on, because a single number may be as good by chance.
    enough = min(takewhile(lambda passages: as_good((mix, passages), (mix, most)), numbers))
    return Choice(mix, enough)


def sentence(choice: Choice, test: Mapping[Key, Losses], tokens: Mapping[Key, int], only: str) -> str:
    """The recommendation, and its loss on test text. Validation text decided how many passages are enough."""
    most = max(passages for _, passages in test)
    code, worst = test[choice.key].worst()
    count = f"{choice.passages} passage{'s' * (choice.passages != 1)}"
    advice = (
        f"Calibrate on {_words(choice.mix, only)} with {count}{'' if choice.mix == 'only' else ' per language'} "
        f"({tokens[choice.key]:,} tokens): the worst-off language, {language(code).name}, then loses {degradation(worst)}"
    )
    if choice.passages < most:
        advice += f", and {most} passages ({tokens[choice.mix, most]:,} tokens) were no better beyond noise"
    else:
        advice += ", and fewer passages were not enough"
    if choice.mix == "only":
        return f"{advice}."
    alone: Key = ("only", most)
    code, worst = test[alone].worst()
    rise = test[alone].worst_difference(test[choice.key])
    verdict = "beyond noise" if rise.low > 0 or rise.high < 0 else "a difference within noise"
    return (
        f"{advice}; with {mix_name('only', only)} ({tokens[alone]:,} tokens) the worst-off, {language(code).name}, "
        f"loses {degradation(worst)} ({verdict})."
    )


def degradation(loss: Estimate) -> str:
    """D of a loss in nats as text; 'collapsed' for a language that collapsed."""
    return "collapsed" if loss.value > np.log(COLLAPSE_FACTOR) else percent(float(np.expm1(loss.value)))


def degradation_interval(loss: Estimate) -> str:
    """`2.8 to 3.7`, in percent."""
    collapsed = loss.value > np.log(COLLAPSE_FACTOR)
    return "" if collapsed else f"{100 * np.expm1(loss.low):z.1f} to {100 * np.expm1(loss.high):z.1f}"


def left_out_sentence(left_out: LeftOut) -> str:
    verdict = "beyond noise" if left_out.rise.low > 0 or left_out.rise.high < 0 else "a difference within noise"
    return (
        f"{language(left_out.language).name} loses {degradation(left_out.with_text)} with its own text in an equal mix, "
        f"{degradation(left_out.without_text)} without ({verdict})."
    )


def _words(mix: Mix, only: str) -> str:
    return {
        "equal": "all languages equally",
        "proportional": "all languages in proportion to their tokens",
        "minimax": "all languages under minimax weights",
        "only": mix_name("only", only),
    }[mix]
