"""From a model, calibration text and validation text to a plan for the worst-off language under a budget. Test text never comes here.

Curvature predicts what every way to store every tensor costs every language; random plans that are measured put the prediction to scale; the
programme allocates; the plan is quantized and measured, refined once from what was measured, and the languages' weights are played
against it round by round. The best plan that was measured is the result. Every step that takes long is kept in the store.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from laaciq.engine.progress import Progress
from laaciq.engine.store import RunFolder
from laaciq.errors import BadOption
from laaciq.models import LanguageModel
from laaciq.options import WeightOptions
from laaciq.planning.results import FrontPoint, Planning
from laaciq.planning.rules import deciding_languages, held_out
from laaciq.planning.search import Search, agreement
from laaciq.planning.search_space import SearchSpace
from laaciq.planning.steps import EFFORT_PRESETS, Planner
from laaciq.quantization import Calibration

# Sizes of the front's plans, in bits a weight.
FRONT = (2.5, 3.0, 3.25, 3.5, 4.0, 4.25, 4.5, 5.0, 6.0)


def plan_model(
    model: LanguageModel,
    calibration: Calibration,
    options: WeightOptions,
    *,
    served_bound: float,
    store: RunFolder | None = None,
    progress: Progress | None = None,
) -> Planning:
    """The plan of method 'planned', and how it was found. Reads the calibration and the validation text of languages that are served."""
    if calibration.profile is None:
        raise BadOption("planning needs a profile of the model: make one of the calibration text first")
    deciding = deciding_languages(calibration.profile, options, served_bound)
    how = EFFORT_PRESETS[options.effort]
    known = calibration.texts.select(deciding)
    checked = calibration.validating(deciding)
    planner = Planner(
        model,
        replace(calibration, texts=known),
        checked.spread(-(-how.validation // len(deciding))),
        options,
        store,
        progress or Progress(),
    )
    menu = planner.menu()
    probes = [planner.probe(menu, number) for number in range(how.probes)]
    search = Search(planner, menu, probes)
    search.run()
    # Tuned once, when it is written: to tune every plan that is tried would take the time of all of them.
    plan = search.plans[search.best].model_copy(update={"tuned": how.tuned if options.tune is None else options.tune})
    if search.best_layers is not None:
        calibration.rounded.keep(plan, search.best_layers)
    return Planning(
        plan=plan,
        objective=options.objective,
        effort=options.effort,
        languages=deciding,
        held_out=held_out(options),
        exchange=search.exchange.tolist(),
        scale=search.menu.scale.tolist(),
        gap=search.gap,
        rounds=search.rounds,
        chosen=search.best,
        probes=search.probes,
        agreement=agreement(search.probes, search.menu.scale, search.exchange),
        front=_front(planner, search.menu) if how.front else [],
    )


def _front(planner: Planner, menu: SearchSpace) -> list[FrontPoint]:
    weights = sum(tensor.weights for tensor in planner.tensors)
    least = sum(size.min() for size in menu.sizes)
    found = []
    with planner.progress.stage("front", len(FRONT)) as advance:
        for bits in FRONT:
            if bits * weights >= least:
                plan = planner.allocate(menu, limit=int(bits * weights), gap=0.02, seconds=10.0)
                worst, best = plan.losses.max(), plan.losses.min()
                found.append(
                    FrontPoint(
                        bits_per_weight=plan.size / weights,
                        worst=float(worst),
                        disparity=float(np.expm1(worst) - np.expm1(best)),
                    )
                )
            advance(1)
    return found
