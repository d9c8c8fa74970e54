"""Which calibration text? A model is quantized under several mixes of languages and numbers of passages, and every language's loss is measured.

Everything that is chosen (who is served, minimax weights, languages to leave out, the recommendation) is chosen on validation text; test text
is only reported on. Intervals cover the passages that losses are measured on, not the draw of calibration text.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from laaciq.corpus import Split, language
from laaciq.engine.files import write_text
from laaciq.engine.progress import Progress
from laaciq.engine.store import RunFolder
from laaciq.errors import BadOption, BrokenTexts, UnknownLanguage
from laaciq.evaluation.degradation import COLLAPSE_FACTOR, CROSS_FIT_SPLITS
from laaciq.evaluation.disparity import disparity_of
from laaciq.models import LanguageModel
from laaciq.options import GridOptions, MixtureOptions
from laaciq.planning.minimax import minimax_rounds
from laaciq.planning.rules import equal_weights
from laaciq.studies.differences import by_language, difference, mean_loss, worst_difference, worst_loss
from laaciq.studies.mixes import MIXES, Mix, proportional_weights
from laaciq.studies.mixture_results import LeftOut, MixtureStudy, Recommendation, Setting
from laaciq.studies.recalibration import Recalibrations
from laaciq.studies.recommendation import Key, choose, sentence
from laaciq.trials.estimate import estimate

# Worst languages whose own text is left out, where none are named.
LEFT_OUT = 2
Weights = dict[str, float]


def mixture_study(
    model: LanguageModel,
    split: Split,
    chosen: MixtureOptions,
    *,
    store: RunFolder | None = None,
    progress: Progress | None = None,
) -> MixtureStudy:
    """Quantize under every mix, with every number of calibration passages and with all.

    Minimax weights are found with all passages, and used with fewer too. What the `store` has is not computed again.
    """
    options = chosen.measuring()
    named = [language(name).code for name in (chosen.single_language, *(chosen.leave_out or ()))]
    _require_texts(split, named)
    bench = Recalibrations(model, split, options, chosen, store, progress or Progress())
    heard = bench.original("validation")
    served = [code for code, own in heard.items() if own.bits_per_byte <= options.served_bound]
    if missing := [code for code in named if code not in served]:
        raise BadOption(f"{missing[0]} is not served by the original: raise --served-bound or name another language")
    if len(served) < 2:
        raise BadOption("fewer than two languages are served, and nothing can be mixed: give more languages")
    bench = bench.serving(served)
    numbers = bench.numbers(chosen.calibration_passages)
    extra = chosen.rounds + (LEFT_OUT if chosen.leave_out is None else len(chosen.leave_out))
    _announce(bench, len(MIXES) * len(numbers) - 1 + extra)
    equal, most = equal_weights(served), numbers[-1]
    rounds = _minimax(bench, equal, most, chosen.rounds)
    best = min(rounds, key=lambda weights: bench.losses("validation", weights, most).per_token.max())
    settings: dict[Key, Weights] = {}
    for number in numbers:
        proportional = proportional_weights(bench.tokens(served, number))
        weights: dict[Mix, Weights] = {
            "equal": equal, "proportional": proportional, "minimax": best, "only": {named[0]: 1.0},
        }  # fmt: skip
        settings |= {(mix, number): weights[mix] for mix in MIXES}
    left_out = named[1:] if chosen.leave_out is not None else _worst(bench, equal, most)
    result = MixtureStudy(
        model=model.folder.name,
        texts=split.calibration.name,
        **chosen.model_dump(include=set(GridOptions.model_fields)),
        only=named[0],
        languages=served,
        not_served=[code for code in heard if code not in served],
        validation_passages=max(map(len, bench.split.validation.by_language.values())),
        test_passages=max(map(len, bench.split.test.by_language.values())),
        rounds=rounds,
        settings=[_setting(bench, (mix, n), settings[mix, n]) for mix in MIXES for n in numbers],
        left_out=[_left_out(bench, code, equal, most) for code in left_out],
        recommendation=_recommend(bench, settings, named[0]),
    )
    if store is not None:
        write_text(store.path / "calibration.json", result.model_dump_json(indent=1))
    return result


def _require_texts(split: Split, named: list[str]) -> None:
    known = split.calibration.languages
    if missing := [code for code in named if code not in known]:
        raise UnknownLanguage(
            f"{split.calibration.name} has no text in {language(missing[0]).name} ({missing[0]}): "
            f"give --single-language and --leave-out of {', '.join(known)}"
        )
    for code in known:
        if not len(split.calibration[code]):
            raise BrokenTexts(f"{code} has no calibration text: give more passages")
        if any(len(set(part[code].documents)) < 2 for part in (split.validation, split.test)):
            raise BrokenTexts(f"{code} has fewer than two documents to validate or to test on: give more passages")


def _minimax(bench: Recalibrations, start: Weights, passages: int, rounds: int) -> list[Weights]:
    """The weights of every round, the first ones first."""
    codes = list(start)

    def named(weights: np.ndarray) -> Weights:
        return dict(zip(codes, weights.tolist(), strict=True))

    def measure(number: int, weights: np.ndarray) -> np.ndarray:
        return bench.losses("validation", named(weights), passages).per_token

    return [named(weights) for weights, _ in minimax_rounds(np.array(list(start.values())), measure, "worst", rounds)]


def _worst(bench: Recalibrations, weights: Weights, passages: int) -> list[str]:
    losses = bench.losses("validation", weights, passages)
    return [losses.codes[index] for index in np.argsort(-losses.per_token, kind="stable")[:LEFT_OUT]]


def _setting(bench: Recalibrations, key: Key, weights: Weights) -> Setting:
    mix, passages = key
    validation, test = bench.losses("validation", weights, passages), bench.losses("test", weights, passages)
    worst_language, worst = worst_loss(test)
    collapsed = worst.value > np.log(COLLAPSE_FACTOR)
    return Setting(
        mix=mix,
        passages=passages,
        tokens=sum(bench.tokens(weights, passages).values()),
        weights=weights,
        validation=dict(zip(validation.codes, validation.per_token.tolist(), strict=True)),
        loss=by_language(test),
        worst_language=worst_language,
        worst=worst,
        mean=mean_loss(test),
        disparity=None if collapsed else disparity_of(test, seed=bench.options.seed, splits=CROSS_FIT_SPLITS),
    )


def _left_out(bench: Recalibrations, code: str, equal: Weights, passages: int) -> LeftOut:
    others = equal_weights([other for other in equal if other != code])
    own, without = bench.losses("test", equal, passages), bench.losses("test", others, passages)
    return LeftOut(
        language=code,
        with_own=by_language(own)[code],
        without_own=by_language(without)[code],
        rise=difference(without, own, code),
    )


def _recommend(bench: Recalibrations, settings: dict[Key, Weights], only: str) -> Recommendation:
    choice = choose({key: bench.losses("validation", weights, key[1]) for key, weights in settings.items()})
    test = {key: bench.losses("test", weights, key[1]) for key, weights in settings.items()}
    tokens = {key: sum(bench.tokens(weights, key[1]).values()) for key, weights in settings.items()}
    most = max(passages for _, passages in settings)
    return Recommendation(
        mix=choice.mix,
        passages=choice.passages,
        tokens=tokens[choice.key],
        against_all=worst_difference(test[choice.key], test[choice.mix, most]),
        only_against=worst_difference(test["only", most], test[choice.key]),
        sentence=sentence(choice, test, tokens, only),
    )


def _announce(bench: Recalibrations, quantizations: int) -> None:
    model, texts = bench.model, (bench.split.calibration, bench.split.validation, bench.split.test)
    reading, validating, testing = (estimate(model.folder, own, device=model.device) for own in texts)
    # Of two passes each: calibration text is read about three times, validation text by two models, test text by one.
    seconds = quantizations * (1.5 * reading.seconds + validating.seconds + 0.5 * testing.seconds)
    bench.progress.say(
        f"Quantizing {model.folder.name} to {bench.grid.bits} bits {quantizations} times at most and measuring "
        f"{len(texts[0].languages)} languages each time ({texts[0].name}). Reading texts alone takes up to "
        f"{replace(reading, seconds=seconds)}; rounding comes on top, and what is there is not computed again."
    )
