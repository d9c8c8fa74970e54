"""The study of calibration text: a model is quantized under several mixes of languages and numbers of passages, and each language is
measured.

All choices (served languages, minimax weights, languages to leave out, the recommendation) are made on validation text; results are
reported on test text. Intervals cover the passages that losses are measured on, not the draw of calibration text.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from laaciq.corpus import Split, language
from laaciq.engine.progress import Progress
from laaciq.errors import BadOption, BrokenTexts, UnknownLanguage
from laaciq.evaluation.degradation import COLLAPSE_FACTOR, CROSS_FIT_SPLITS
from laaciq.evaluation.disparity import disparity_of
from laaciq.options import GridOptions, MixtureOptions, WeightOptions
from laaciq.planning.estimate import estimate_stages
from laaciq.planning.minimax import minimax_rounds
from laaciq.planning.rules import equal_weights
from laaciq.studies.mixes import MIXES, Mix, proportional_weights
from laaciq.studies.mixture_results import LeftOut, MixtureStudy, Recommendation, Setting
from laaciq.studies.recalibration import METHOD, Recalibrations
from laaciq.studies.recommendation import Key, choose, sentence
from laaciq.studies.texts import require_documents
from laaciq.trials.estimate import StageCost
from laaciq.trials.session import Session

# How many languages' text is left out by default: those of the largest losses.
LEFT_OUT = 2
Weights = dict[str, float]


def mixture_study(session: Session, options: MixtureOptions) -> MixtureStudy:
    """Losses under every mix with every number of passages, and with all passages. Minimax weights are computed with all passages and used
    with fewer too.
    """
    session.left_alone()  # refused at once, before anything is measured
    named = [language(name).code for name in (options.single_language, *(options.leave_out or ()))]
    _require_texts(session.split, named, session.progress)
    if session.workers.apart:
        session.reserve_workers(_quantizing_once(session, options, session.split))
    original = session.original_losses(session.split.validation, part="validation")
    served = [code for code, losses in original.items() if losses.bits_per_byte <= session.options.served_bound]
    if missing := [code for code in named if code not in served]:
        raise BadOption(f"the original does not serve {missing[0]}: raise --served-bound or name another language")
    if len(served) < 2:
        raise BadOption("the original serves fewer than two languages, so there is nothing to mix: give more languages")
    trials = Recalibrations(session.on(session.split.select(served)), options)
    numbers = trials.numbers(options.calibration_passages)
    extra = options.rounds + (LEFT_OUT if options.leave_out is None else len(options.leave_out))
    _announce(session, options, served, len(MIXES) * len(numbers) - 1 + extra)
    equal, most = equal_weights(served), numbers[-1]
    known: dict[Key, Weights] = {}
    for number in numbers:
        proportional = proportional_weights(trials.tokens(served, number))
        by_mix: dict[Mix, Weights] = {"equal": equal, "proportional": proportional, "only": {named[0]: 1.0}}
        known |= {(mix, number): weights for mix, weights in by_mix.items()}
    # Rounds of minimax wait for each other; all else need not wait for them.
    trials.start([(equal, most), *((weights, number) for (_, number), weights in known.items())])
    rounds = _minimax(trials, equal, most, options.rounds)
    best = min(rounds, key=lambda weights: trials.losses("validation", weights, most).per_token.max())
    settings = {key: known.get(key, best) for key in [(mix, number) for number in numbers for mix in MIXES]}
    left_out = named[1:] if options.leave_out is not None else _worst(trials, equal, most)
    trials.start((weights, number) for (_, number), weights in settings.items())
    trials.start((_others(equal, code), most) for code in left_out)
    split = trials.session.split
    return MixtureStudy(
        model=session.folder.name,
        texts=split.calibration.name,
        **options.model_dump(include=set(GridOptions.model_fields)),
        only=named[0],
        languages=served,
        not_served=[code for code in original if code not in served],
        validation_passages=max(map(len, split.validation.by_language.values())),
        test_passages=max(map(len, split.test.by_language.values())),
        rounds=rounds,
        settings=[_setting(trials, (mix, n), settings[mix, n]) for mix in MIXES for n in numbers],
        left_out=[_left_out(trials, code, equal, most) for code in left_out],
        recommendation=_recommend(trials, settings, named[0]),
    )


def _require_texts(split: Split, named: list[str], progress: Progress) -> None:
    known = split.calibration.languages
    if missing := [code for code in named if code not in known]:
        raise UnknownLanguage(
            f"{split.calibration.name} has no text in {language(missing[0]).name} ({missing[0]}): "
            f"choose --single-language and --leave-out from {', '.join(known)}"
        )
    for code in known:
        if not len(split.calibration[code]):
            raise BrokenTexts(f"{code} has no calibration text: give more passages")
    require_documents(split.validation, "validation", progress)
    require_documents(split.test, "test", progress)


def _minimax(trials: Recalibrations, start: Weights, passages: int, rounds: int) -> list[Weights]:
    """The weights of every round, in order."""
    codes = list(start)

    def named(weights: np.ndarray) -> Weights:
        return dict(zip(codes, weights.tolist(), strict=True))

    def measure(number: int, weights: np.ndarray) -> np.ndarray:
        return trials.losses("validation", named(weights), passages).per_token

    return [named(weights) for weights, _ in minimax_rounds(np.array(list(start.values())), measure, "worst", rounds)]


def _worst(trials: Recalibrations, weights: Weights, passages: int) -> list[str]:
    losses = trials.losses("validation", weights, passages)
    return [losses.codes[index] for index in np.argsort(-losses.per_token, kind="stable")[:LEFT_OUT]]


def _setting(trials: Recalibrations, key: Key, weights: Weights) -> Setting:
    mix, passages = key
    validation, test = trials.losses("validation", weights, passages), trials.losses("test", weights, passages)
    worst_language, worst = test.worst()
    collapsed = worst.value > np.log(COLLAPSE_FACTOR)
    return Setting(
        mix=mix,
        passages=passages,
        tokens=sum(trials.tokens(weights, passages).values()),
        weights=weights,
        validation=dict(zip(validation.codes, validation.per_token.tolist(), strict=True)),
        loss=test.by_language(),
        worst_language=worst_language,
        worst=worst,
        mean=test.mean(),
        disparity=None if collapsed else disparity_of(test, seed=trials.session.options.seed, splits=CROSS_FIT_SPLITS),
    )


def _left_out(trials: Recalibrations, code: str, equal: Weights, passages: int) -> LeftOut:
    with_text, without = (trials.losses("test", weights, passages) for weights in (equal, _others(equal, code)))
    return LeftOut(
        language=code,
        with_text=with_text.by_language()[code],
        without_text=without.by_language()[code],
        rise=without.difference(with_text, code),
    )


def _others(equal: Weights, code: str) -> Weights:
    """Equal weights without a language."""
    return equal_weights([other for other in equal if other != code])


def _recommend(trials: Recalibrations, settings: dict[Key, Weights], only: str) -> Recommendation:
    choice = choose({key: trials.losses("validation", weights, key[1]) for key, weights in settings.items()})
    test = {key: trials.losses("test", weights, key[1]) for key, weights in settings.items()}
    tokens = {key: sum(trials.tokens(weights, key[1]).values()) for key, weights in settings.items()}
    most = max(passages for _, passages in settings)
    return Recommendation(
        mix=choice.mix,
        passages=choice.passages,
        tokens=tokens[choice.key],
        against_all=test[choice.key].worst_difference(test[choice.mix, most]),
        only_against=test["only", most].worst_difference(test[choice.key]),
        sentence=sentence(choice, test, tokens, only),
    )


def _announce(session: Session, options: MixtureOptions, served: list[str], quantizations: int) -> None:
    once = _quantizing_once(session, options, session.split.select(served))
    session.announce(
        f"Quantizing {session.folder.name} to {options.bits} bits at most {quantizations} times, each time calibrated on other text, and "
        f"measuring {len(served)} languages each time ({session.split.calibration.name}).",
        [replace(stage, seconds=stage.seconds * quantizations) for stage in once],
    )


def _quantizing_once(session: Session, options: MixtureOptions, split: Split) -> list[StageCost]:
    gptq = WeightOptions(method=METHOD.name, bits=options.bits, group_size=options.group_size)
    costs = session.costs
    return [
        *estimate_stages(costs, split, gptq, last="checkpoint"),
        costs.measuring(split.validation),
        costs.measuring(split.test),
    ]
