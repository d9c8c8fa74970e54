"""Against R on a published example, and against the enumeration of the binomial."""

import numpy as np
import pytest
from scipy import stats

from laaciq.stats.mcnemar import mcnemar


def test_mcnemar_is_that_of_the_paper():
    """Fagerland, Lydersen & Laake (2013, BMC Med Res Methodol 13:91), airway hyper-responsiveness: 1 and 7 discordant pairs,
    exact p 0.070, mid-p 0.039. R: binom.test(1, 8)$p.value, and less dbinom(1, 8, 0.5)."""
    result = mcnemar(1, 7)
    assert (result.exact, result.mid_p) == pytest.approx((0.0703125, 0.0390625), abs=1e-12)
    assert mcnemar(7, 1) == result


@pytest.mark.parametrize("b, c", [(0, 0), (0, 5), (3, 3), (2, 9)])
def test_mcnemar_enumerates_the_binomial(b, c):
    probabilities = stats.binom.pmf(np.arange(b + c + 1), b + c, 0.5)
    far = np.abs(np.arange(b + c + 1) - (b + c) / 2) >= abs(b - c) / 2
    at = np.abs(np.arange(b + c + 1) - (b + c) / 2) == abs(b - c) / 2
    result = mcnemar(b, c)
    assert result.exact == pytest.approx(probabilities[far].sum())
    # Outcomes as likely as the observed one count by half.
    assert result.mid_p == pytest.approx(probabilities[far].sum() - probabilities[at].sum() / 2 if b + c else 1.0)
