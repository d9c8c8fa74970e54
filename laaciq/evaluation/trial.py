"""From the measurements of a trial to its `Evaluation`."""

from __future__ import annotations

from collections.abc import Mapping

from laaciq.corpus import Texts
from laaciq.evaluation.degradation import evaluate_measurements
from laaciq.evaluation.results import Evaluation
from laaciq.trials.measurement import Measurement
from laaciq.trials.session import Session


def evaluate_trial(
    session: Session, measured: Mapping[str, Measurement], texts: Texts, *, quantized: str
) -> Evaluation:
    """The `Evaluation` of a candidate; `quantized` is its name in reports."""
    return evaluate_measurements(
        list(measured.values()),
        original=session.folder.name,
        quantized=quantized,
        texts=texts.name,
        parallel=texts.parallel,
        served_bound=session.options.served_bound,
        seed=session.options.seed,
    )
