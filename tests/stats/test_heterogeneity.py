"""τ, the standard deviation of the true losses between languages, by value."""

import numpy as np
import pytest

from laaciq.evaluation.degradation import evaluate_measurements
from laaciq.stats.heterogeneity import between_deviation, exceedance_p
from tests.evaluation.test_disparity import simulate


@pytest.mark.parametrize(
    ("variance", "shared", "tau"),
    [
        (0.0, 0.0, 2.0),  # no noise: the standard deviation of 1, 3, 5
        (1.0, 0.0, np.sqrt(3.0)),  # 4 − 1
        (1.0, 1.0, 2.0),  # noise that all share moves no language against another
        (1.0, 0.5, np.sqrt(3.5)),
        (9.0, 0.0, 0.0),  # noise explains more than there is
    ],
)
def test_noise_is_subtracted_from_the_variance(variance, shared, tau):
    covariance = np.full((3, 3), variance * shared) + np.diag(np.full(3, variance * (1 - shared)))
    assert between_deviation(np.array([1.0, 3.0, 5.0]), covariance) == pytest.approx(tau)


def test_tau_is_that_of_metafor():
    """rma(c(1, 3, 5, 4), c(0.5, 1, 2, 0.3), method = "HE")$tau2."""
    values, variances = np.array([1.0, 3.0, 5.0, 4.0]), np.array([0.5, 1.0, 2.0, 0.3])
    assert between_deviation(values, np.diag(variances)) ** 2 == pytest.approx(1.9666666666667, abs=1e-12)


def test_an_evaluation_holds_the_same_tau_as_a_computation_from_the_documents():
    """By the jackknife over documents, which shares no code with the evaluation: D without each document, and how they vary together."""
    losses = {"eng": 0.02, "swa": 0.05, "hin": 0.09, "tam": 0.12}
    measurements = simulate(np.random.default_rng(11), losses, passages=200)
    evaluation = evaluate_measurements(
        measurements, original="a", quantized="b", texts="simulated", parallel=True, served_bound=10, draws=200
    )

    def degradations(left_out):
        kept = [index for index in range(200) if index != left_out]
        return [
            np.expm1(
                sum(m.quantized_nll[index] - m.original_nll[index] for index in kept)
                / sum(m.tokens[index] for index in kept)
            )
            for m in measurements
        ]

    whole = np.array(degradations(None))
    without = np.array([degradations(index) for index in range(200)])
    covariance = 199 / 200 * (without - without.mean(0)).T @ (without - without.mean(0))
    noise = np.mean(np.diag(covariance)) - np.mean(covariance[~np.eye(4, dtype=bool)])
    # The jackknife and the linear approximation differ by the order of one document in two hundred.
    assert evaluation.disparity.between_deviation == pytest.approx(np.sqrt(whole.var(ddof=1) - noise), rel=0.005)
    # Not the standard deviation of the estimates, which holds their noise too.
    assert evaluation.disparity.between_deviation < whole.std(ddof=1)


def test_tau_of_equal_languages_is_near_zero_and_p_is_a_share():
    random = np.random.default_rng(12)
    taus = [
        between_deviation(random.normal(0.0, 0.1, 12), 0.01 * np.eye(12)) ** 2
        - between_deviation(random.normal(0.0, np.sqrt(0.05), 12), 0.01 * np.eye(12)) ** 2
        for _ in range(2000)
    ]
    # τ² = 0.05 − 0.01 = 0.04 in the second; the cut at zero leaves a little in the first.
    assert np.mean(taus) == pytest.approx(-0.04, abs=0.003)
    assert exceedance_p(2.0, np.array([1.0, 2.0, 3.0])) == 3 / 4
    assert exceedance_p(9.0, np.array([1.0, 2.0, 3.0])) == 1 / 4
