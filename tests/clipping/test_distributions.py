import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from laaciq.clipping.distributions import GAUSSIAN, LAPLACIAN, GeneralisedGaussian, StudentT
from laaciq.errors import BadOption

MEMBERS = st.one_of(
    st.floats(0.3, 20).map(GeneralisedGaussian),
    st.floats(4.1, 200).map(StudentT),
    st.sampled_from([GAUSSIAN, LAPLACIAN]),
)


def reference(member):
    """scipy's own, scaled to variance 1."""
    frozen = stats.t(member.df) if isinstance(member, StudentT) else stats.gennorm(member.shape)
    sigma = frozen.std()
    return lambda x: sigma * frozen.pdf(x * sigma)


@settings(max_examples=25)
@given(MEMBERS, st.floats(0.01, 6), st.sampled_from([0, 1, 2]))
def test_closed_forms_are_the_integrals(member, alpha, order):
    density = reference(member)
    tail, _ = integrate.quad(lambda x: 2 * x**order * density(x), alpha, np.inf, epsabs=1e-13, limit=500)
    clipped, _ = integrate.quad(lambda x: 2 * (x - alpha) ** 2 * density(x), alpha, np.inf, epsabs=1e-13, limit=500)
    # As good as the quadrature is on the tails of a t with 4 degrees of freedom.
    assert member.tail_moment(order, alpha) == pytest.approx(tail, rel=1e-6, abs=1e-9)
    assert member.clipping_error(alpha) == pytest.approx(clipped, rel=1e-6, abs=1e-9)


@given(MEMBERS)
def test_variance_is_one_and_kurtosis_that_of_scipy(member):
    frozen = stats.t(member.df) if isinstance(member, StudentT) else stats.gennorm(member.shape)
    assert member.tail_moment(0, 0.0) == pytest.approx(1)
    assert member.clipping_error(0.0) == pytest.approx(1)
    assert member.kurtosis == pytest.approx(float(frozen.stats("k")), rel=1e-9, abs=1e-9)


@given(st.floats(-1.19, 1900))
def test_generalised_gaussian_of_a_kurtosis(kurtosis):
    assert GeneralisedGaussian.of_kurtosis(kurtosis).kurtosis == pytest.approx(kurtosis, rel=1e-8, abs=1e-8)


@given(st.floats(1e-3, 1e3))
def test_student_t_of_a_kurtosis(kurtosis):
    assert StudentT.of_kurtosis(kurtosis).kurtosis == pytest.approx(kurtosis, rel=1e-9)


def test_known_members():
    assert GAUSSIAN.kurtosis == pytest.approx(0, abs=1e-12)
    assert LAPLACIAN.kurtosis == pytest.approx(3)
    assert GeneralisedGaussian(0.5).kurtosis == pytest.approx(22.2)
    alphas = np.linspace(0, 8, 9).reshape(3, 3)
    # 2b²·exp(−α/b) with b = 1/√2.
    assert LAPLACIAN.clipping_error(alphas) == pytest.approx(np.exp(-np.sqrt(2) * alphas), rel=1e-9)
    tail = (1 + alphas**2) * stats.norm.sf(alphas) - alphas * stats.norm.pdf(alphas)
    assert GAUSSIAN.clipping_error(alphas) == pytest.approx(2 * tail, rel=1e-9)


@given(MEMBERS)
def test_more_room_clips_less(member):
    errors = member.clipping_error(np.linspace(0, 1000, 2000))
    # Rounding of α² times a tail, where nothing is left to clip.
    assert (np.diff(errors) <= 1e-12).all()
    assert (errors >= 0).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: GeneralisedGaussian(0.0),
        lambda: GeneralisedGaussian(np.nan),
        lambda: GeneralisedGaussian.of_kurtosis(-1.2),
        lambda: GeneralisedGaussian.of_kurtosis(np.inf),
        lambda: StudentT(4.0),
        lambda: StudentT(np.inf),
        lambda: StudentT.of_kurtosis(0.0),
    ],
)
def test_what_does_not_exist_is_refused(make):
    with pytest.raises(BadOption, match="give"):
        make()
