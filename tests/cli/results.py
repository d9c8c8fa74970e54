"""Evaluations with known losses, made without a model."""

from __future__ import annotations

import math

from laaciq.evaluation import Evaluation, Measurement, evaluate_measurements


def evaluation(degradation: dict[str, float], *, not_served: tuple[str, ...] = (), documents: int = 12) -> Evaluation:
    """Each language loses its D in every one of its documents, so that the estimate is D exactly."""
    measurements = [
        _measurement(code, math.log1p(loss), documents, served=code not in not_served)
        for code, loss in (degradation | dict.fromkeys(not_served, 0.0)).items()
    ]
    return evaluate_measurements(
        measurements, original="original", quantized="quantized", texts="builtin", parallel=True, served_bound=4.0
    )


def _measurement(code: str, loss: float, documents: int, *, served: bool) -> Measurement:
    tokens = 40
    return Measurement(
        language=code,
        served=served,
        documents=[f"d{number}" for number in range(documents)],
        tokens=[tokens] * documents,
        bytes=[4 * tokens] * documents,
        original_nll=[3.0 * tokens] * documents,
        quantized_nll=[(3.0 + loss) * tokens] * documents,
        kl=[0.01 * tokens] * documents,
        agreed=[tokens - 2] * documents,
    )
