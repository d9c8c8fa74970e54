"""From the options and settings of a verb to its session; and what all studies do with theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from laaciq.commands.settings import Settings, read_keywords
from laaciq.engine.recipe import recipe_of
from laaciq.engine.workers import make_workers
from laaciq.options import (
    EvaluateOptions,
    GatewayOptions,
    ImatrixOptions,
    InterveneOptions,
    Options,
    PlanOptions,
    ProfileOptions,
    QuantizeOptions,
    RunOptions,
    SensitivityOptions,
    SweepOptions,
)
from laaciq.options.groups import MeasuredModelOptions
from laaciq.planning.estimate import memory_demand
from laaciq.trials.memory import MEASURING, PROFILING, Demand
from laaciq.trials.session import Session

Result = TypeVar("Result", bound=BaseModel)
Measured = TypeVar("Measured", bound=MeasuredModelOptions)


def open_session(
    options: MeasuredModelOptions | EvaluateOptions | ProfileOptions,
    settings: Settings,
    *,
    description: dict[str, object] | None = None,
) -> Session:
    """To be used in a `with` block, which gives the folder for results free again."""
    return Session.open(
        options.against if isinstance(options, EvaluateOptions) else options.model,
        options.texts,
        options.measuring(),
        languages=options.languages,
        passages=getattr(options, "passages", None),
        out=settings.out,
        description=description or {"command": options.command},
        overwrite=settings.overwrite,
        recipe=recipe_of(options),
        device=settings.device,
        progress=settings.progress,
        workers=make_workers(settings.workers, settings.ray),
        limits=settings.limits,
        allow_left_alone=getattr(options, "allow_left_alone", None),
        demand=_memory_demand(options),
    )


def _memory_demand(options: Options) -> Demand:
    match options:
        case ProfileOptions() | ImatrixOptions():
            return PROFILING
        case SensitivityOptions() | SweepOptions() | GatewayOptions() | InterveneOptions() | EvaluateOptions():
            return MEASURING
        case PlanOptions():
            return replace(memory_demand(options.quantizing()), tuning=False)
        case QuantizeOptions() | RunOptions():
            return memory_demand(options.quantizing())
    return Demand()


def run_study(
    study: Callable[[Session, Measured], Result],
    kind: type[Measured],
    model: str | Path,
    keywords: Mapping[str, Any],
    *,
    page: Callable[[Result], str] | None = None,
) -> Result:
    """The result of a study of one model, written as JSON under the verb's name and, if there is a `page`, as a report."""
    options, settings = read_keywords(kind, keywords, model=model)
    with open_session(options, settings) as session:
        result = study(session, options)
        session.store.write(f"{options.verb}.json", result.model_dump_json(indent=1))
        if page is not None:
            session.store.write("report.html", page(result))
        session.store.finish()
    return result
