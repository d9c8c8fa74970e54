import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laaciq.clipping.distributions import GeneralisedGaussian, StudentT
from laaciq.clipping.sharing import sharing_cost, sharing_table
from laaciq.errors import BadOption

FAMILIES = st.sampled_from([GeneralisedGaussian, StudentT])


@settings(max_examples=30)
@given(st.floats(0.5, 20), st.integers(2, 8), FAMILIES)
def test_the_quadratic_law_holds_nearby(kurtosis, bits, family):
    """Both parabolas meet the exact cost, and a quarter of the distance costs a sixteenth."""
    near, nearer = (sharing_cost(kurtosis, kurtosis * (1 + gap), bits, family=family) for gap in (0.02, 0.005))
    # Off by the cubic terms, in proportion to the distance.
    assert near.quadratic_law == pytest.approx(near.excess, rel=0.06)
    assert near.second_order == pytest.approx(near.excess, rel=0.06)
    assert near.excess / nearer.excess == pytest.approx(16, rel=0.06)


@settings(max_examples=30)
@given(st.floats(0.5, 24), st.floats(0.5, 24), st.integers(2, 8), FAMILIES)
def test_sharing_never_pays(effective, shared, bits, family):
    assert sharing_cost(effective, shared, bits, family=family).excess >= -1e-12


def test_the_quadratic_law_fails_far_away():
    """At 4 bits, about κ = 3: within a fifth at a distance of ½, six times too low at 21."""
    ratios = {
        row.effective_kurtosis: row.quadratic_law / row.excess
        for row in sharing_table([4])
        if row.family != "Student-t"
    }
    assert 0.8 < ratios[3.5] < ratios[2.5] < 1.2
    assert ratios[24.0] < 0.2
    assert ratios[0.5] > 2.5


def test_a_kurtosis_out_of_reach_is_refused():
    with pytest.raises(BadOption, match="κ = -1"):
        sharing_cost(-1.0, 3.0, 4, family=StudentT)
