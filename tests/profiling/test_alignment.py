import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import ortho_group

from laaciq.errors import BrokenTexts, UnknownLanguage
from laaciq.profiling.alignment import Alignment, alignment, mean_centred_cosine, retrieval_accuracy

WIDTH = 6
seeds = st.integers(0, 2**32 - 1)
offsets = arrays(np.float64, WIDTH, elements=st.floats(-100, 100))


def draw(seed, passages=12, width=WIDTH):
    return np.random.default_rng(seed).standard_normal((passages, width))


def test_identical_vectors_are_aligned():
    vectors = draw(0)
    assert mean_centred_cosine(vectors, vectors) == pytest.approx(1)
    assert retrieval_accuracy(vectors, vectors) == 1


def test_opposite_vectors():
    assert mean_centred_cosine(draw(0), -draw(0)) == pytest.approx(-1)
    assert retrieval_accuracy(draw(0), -draw(0)) == 0


def test_three_passages_by_hand():
    a = np.array([[1.0, 0], [0, 1], [-1, -1]])
    b = np.array([[0.0, 1], [1, 0], [-1, -1]])
    # Both are centred already: cosines 0, 0, 1; only the third passage is its own nearest, in either direction.
    assert mean_centred_cosine(a, b) == pytest.approx(1 / 3)
    assert retrieval_accuracy(a, b) == pytest.approx(1 / 3)


def test_unrelated_vectors_are_at_chance():
    a, b = draw(0, 400, 50), draw(1, 400, 50)
    # Four standard errors: 1/√(400·50) for the cosine; a binomial share of 1/400 among 800 for retrieval.
    assert abs(mean_centred_cosine(a, b)) < 4 / np.sqrt(400 * 50)
    assert retrieval_accuracy(a, b) == pytest.approx(1 / 400, abs=4 * np.sqrt(1 / 400 / 800))


def test_a_common_direction_is_no_alignment():
    common = 1000 * np.ones(50)
    a, b = draw(0, 400, 50) + common, draw(1, 400, 50) + common
    assert abs(mean_centred_cosine(a, b)) < 4 / np.sqrt(400 * 50)


@settings(deadline=None)
@given(seeds, offsets, offsets, st.floats(0.01, 100))
def test_offsets_scales_and_common_rotations_change_nothing(seed, offset, other, scale):
    a = draw(seed)
    b = a + 0.5 * draw(seed + 1)
    turn = ortho_group.rvs(WIDTH, random_state=seed)
    moved, other_moved = scale * (a @ turn) + offset, b @ turn + other
    # Offsets 10⁴ times the vectors cost that many of float64's 16 digits.
    assert mean_centred_cosine(moved, other_moved) == pytest.approx(mean_centred_cosine(a, b), abs=1e-9)
    assert retrieval_accuracy(moved, other_moved) == retrieval_accuracy(a, b)


@settings(deadline=None)
@given(seeds)
def test_both_are_symmetric_and_bounded(seed):
    a, b = draw(seed), draw(seed + 1)
    assert mean_centred_cosine(a, b) == pytest.approx(mean_centred_cosine(b, a))
    assert retrieval_accuracy(a, b) == retrieval_accuracy(b, a)
    assert -1 <= mean_centred_cosine(a, b) <= 1
    assert 0 <= retrieval_accuracy(a, b) <= 1


def test_a_block_that_tells_no_passages_apart_is_at_chance():
    same = np.full((10, WIDTH), 0.1)
    assert mean_centred_cosine(same, draw(0, 10)) == 0
    assert retrieval_accuracy(same, draw(0, 10)) == pytest.approx(1 / 10)
    assert retrieval_accuracy(same, same) == pytest.approx(1 / 10)


def test_alignment_goes_block_by_block_and_is_read_back():
    english = np.stack([draw(0), draw(1)])
    swahili = np.stack([draw(0) + 5, draw(2)]).astype(np.float32)
    aligned = {result.language: result for result in alignment({"eng": english, "swa": swahili})}
    assert aligned["eng"].cosine == pytest.approx([1, 1])
    assert aligned["eng"].retrieval == [1, 1]
    # float32 after adding 5.
    assert aligned["swa"].cosine == pytest.approx([1, mean_centred_cosine(draw(2), draw(1))], abs=1e-5)
    assert aligned["swa"].retrieval == [1, retrieval_accuracy(draw(2), draw(1))]
    assert Alignment.model_validate_json(aligned["swa"].model_dump_json()) == aligned["swa"]


def test_another_pivot():
    vectors = {"deu": draw(0)[None], "fra": draw(0)[None] + 1}
    assert [result.retrieval for result in alignment(vectors, pivot="deu")] == [[1], [1]]


def test_no_pivot():
    with pytest.raises(UnknownLanguage, match="no passages in eng"):
        alignment({"swa": draw(0)[None]})


@pytest.mark.parametrize("other", [draw(0, 11)[None], draw(0, 12, 5)[None], draw(0)])
def test_vectors_of_other_passages(other):
    with pytest.raises(BrokenTexts, match="swa has vectors of shape"):
        alignment({"eng": draw(0)[None], "swa": other})


def test_one_passage_is_not_enough():
    with pytest.raises(BrokenTexts, match="at least two passages"):
        alignment({"eng": draw(0, 1)[None]})
