"""Bit sweep: D(λ) by bits, the smallest B a language tolerates at a given loss, and B* where disparity leaves the noise floor."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, lru_cache
from itertools import takewhile
from typing import Literal

from pydantic import BaseModel, ConfigDict, field_validator

from laaciq.corpus import Texts
from laaciq.engine.files import write_text
from laaciq.engine.progress import Progress
from laaciq.engine.store import RunFolder, key_of
from laaciq.errors import BadOption
from laaciq.evaluation import Disparity, Estimate, Evaluation, Measurement, Summary, evaluate_measurements, measure
from laaciq.models import LanguageModel
from laaciq.options import BITS, Bits, GroupSize, MeasureOptions, Options, QuantizeOptions
from laaciq.planning.methods import find_method
from laaciq.planning.rules import make_plans
from laaciq.quantization.model import quantize_layers
from laaciq.quantization.plan import Plan
from laaciq.trials.estimate import estimate
from laaciq.trials.quantized_copy import copy_of, simulate


class SweepOptions(Options):
    """What is swept, and how much loss is tolerated."""

    bits: tuple[Bits, ...]
    tolerance: float
    group_size: GroupSize
    symmetric: bool
    method: str

    @field_validator("bits")
    @classmethod
    def _ascending(cls, bits: tuple[int, ...]) -> tuple[int, ...]:
        if not bits:
            raise BadOption("no bits to sweep: give for example 2,3,4,6,8")
        return tuple(sorted(set(bits)))

    @field_validator("tolerance")
    @classmethod
    def _not_negative(cls, tolerance: float) -> float:
        if not tolerance >= 0:
            raise BadOption(f"tolerance {tolerance} is out of range: give a loss such as 0.05 for 5 %")
        return tolerance

    @field_validator("method")
    @classmethod
    def _known(cls, method: str) -> str:
        return find_method(method).name


class Sweep(BaseModel):
    """All linear layers of the blocks at each number of bits B, ascending.

    `degradation[language][B]` is D(λ), None where the language collapsed. `tolerated_bits` is the smallest B from which on, at every larger
    B of the sweep too, the upper end of D's interval is at most `tolerance`; None where there is no such B. `disparity` is None at a B where
    fewer than two languages are judged; `critical_bits` is B*, the largest B at which, as at every smaller one, disparity is
    beyond noise, None if there is none.
    `summary` counts the languages that collapsed. Those that the original does not serve are named, and left out of all else.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    model: str
    texts: str
    method: str
    group_size: GroupSize
    symmetric: bool
    tolerance: float
    bits: tuple[Bits, ...]
    languages: list[str]
    not_served: list[str]
    degradation: dict[str, dict[int, Estimate | None]]
    tolerated_bits: dict[str, int | None]
    disparity: dict[int, Disparity | None]
    critical_bits: int | None
    summary: dict[int, Summary]


def sweep(
    model: LanguageModel,
    texts: Texts,
    options: MeasureOptions,
    *,
    bits: Iterable[int] = BITS,
    tolerance: float = 0.05,
    group_size: GroupSize = 64,
    symmetric: bool = True,
    method: str = "rtn",
    store: RunFolder | None = None,
    progress: Progress | None = None,
) -> Sweep:
    """Quantize the blocks to each number of bits and measure what every language loses. What the `store` has is not computed again."""
    asked = SweepOptions.of(
        bits=tuple(bits), tolerance=tolerance, group_size=group_size, symmetric=symmetric, method=method
    )
    plans = {
        own: make_plans(
            model.anatomy,
            QuantizeOptions(method=method, bits=own, group_size=group_size, symmetric=symmetric),
        ).first
        for own in asked.bits
    }
    measured = _measure_all(model, texts, options, plans, store, progress or Progress())
    evaluations = {
        own: evaluate_measurements(
            measurements,
            original=model.folder.name,
            quantized=f"{method}, {own} bits",
            texts=texts.name,
            parallel=texts.parallel,
            served_bound=options.served_bound,
            seed=options.seed,
        )
        for own, measurements in measured.items()
    }
    result = _result(evaluations, asked)
    if store is not None:
        write_text(store.path / "sweep.json", result.model_dump_json(indent=1))
    return result


def _result(evaluations: dict[int, Evaluation], asked: SweepOptions) -> Sweep:
    # The original decides who is served, so that every number of bits says the same.
    first = next(iter(evaluations.values()))
    served = [result.language for result in first.languages if result.served]
    degradation = {code: {own: found[code].degradation for own, found in evaluations.items()} for code in served}
    disparity = {own: found.disparity for own, found in evaluations.items()}
    return Sweep(
        model=first.original,
        texts=first.texts,
        languages=served,
        not_served=first.summary.not_served,
        degradation=degradation,
        tolerated_bits={code: tolerated_bits(own, asked.tolerance) for code, own in degradation.items()},
        disparity=disparity,
        critical_bits=critical_bits(disparity),
        summary={own: found.summary for own, found in evaluations.items()},
        **asked.model_dump(),
    )


def critical_bits(disparity: dict[int, Disparity | None]) -> int | None:
    """B*, the largest B at which, and at every smaller judged B too, disparity is beyond noise.

    One B alone is beyond it by chance in one of twenty sweeps; the run from below is not.
    """
    judged = {bits: found for bits, found in sorted(disparity.items()) if found is not None}
    return max(takewhile(lambda bits: judged[bits].beyond_noise, judged), default=None)


def tolerated_bits(degradation: dict[int, Estimate | None], tolerance: float) -> int | None:
    """The smallest B from which on, at every larger B too, the upper end of D's interval is at most `tolerance`."""

    def tolerated(bits: int) -> bool:
        found = degradation[bits]
        return found is not None and found.high <= tolerance

    return min(takewhile(tolerated, sorted(degradation, reverse=True)), default=None)


def _measure_all(
    model: LanguageModel,
    texts: Texts,
    options: MeasureOptions,
    plans: dict[int, Plan],
    store: RunFolder | None,
    progress: Progress,
) -> dict[int, list[Measurement]]:
    """By bits, every language under the model and under its twin."""

    @cache
    def twin() -> LanguageModel:
        return copy_of(model)

    @lru_cache(maxsize=1)  # the twin holds one number of bits at a time
    def quantized(bits: int) -> LanguageModel:
        simulate(model, twin(), quantize_layers(model, plans[bits]))
        return twin()

    def kept(bits: int, code: str, advance: Callable[[int], None]) -> Measurement:
        def compute() -> Measurement:
            return measure(model, quantized(bits), texts[code], options, advance=advance)

        return compute() if store is None else store.result(_file(bits, code), Measurement, keys[bits, code], compute)

    keys = _keys(model, texts, options, plans)
    pending = [pair for pair, key in keys.items() if store is None or not store.valid(_file(*pair), key)]
    _announce(model, texts, [code for _, code in pending], list(plans), progress)
    with progress.stage("measuring", sum(len(texts[code]) for _, code in pending)) as advance:
        return {bits: [kept(bits, code, advance) for code in texts.languages] for bits in plans}


def _keys(
    model: LanguageModel, texts: Texts, options: MeasureOptions, plans: dict[int, Plan]
) -> dict[tuple[int, str], str]:
    common = key_of("swept", model.folder.fingerprint, options.model_dump(), model.device.type)
    languages = {code: key_of(common, own.texts, own.documents) for code, own in texts.by_language.items()}
    return {
        (bits, code): key_of(key, plan.model_dump()) for bits, plan in plans.items() for code, key in languages.items()
    }


def _file(bits: int, code: str) -> str:
    return f"measurements/{bits}-bit.{code}.json"


def _announce(model: LanguageModel, texts: Texts, pending: list[str], bits: list[int], progress: Progress) -> None:
    if not pending:
        progress.say("Everything is up to date; nothing is computed again.")
        return
    whole = estimate(model.folder, texts, device=model.device)
    sizes = {code: passages.byte_count for code, passages in texts.by_language.items()}
    cost = replace(whole, seconds=whole.seconds * sum(sizes[code] for code in pending) / sum(sizes.values()))
    progress.say(
        f"Quantizing {model.folder.name} to {', '.join(map(str, bits))} bits and measuring {len(texts.languages)} languages "
        f"each time ({texts.name}). This takes {cost}."
    )
