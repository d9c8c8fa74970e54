"""Against a published example and R's p.adjust."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laaciq.stats.multiplicity import benjamini_hochberg, bonferroni, holm

# Benjamini & Hochberg (1995), section 3.2: 15 tests of thrombolysis.
PUBLISHED_P = [
    *(0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344),
    *(0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000),
]


def test_corrections_reject_what_the_paper_rejects():
    assert (bonferroni(PUBLISHED_P) <= 0.05).sum() == 3
    assert (benjamini_hochberg(PUBLISHED_P) <= 0.05).sum() == 4


def test_corrections_are_those_of_r():
    """p.adjust(p, "bonferroni"), p.adjust(p, "holm"), p.adjust(p, "BH")."""
    some = [*(0.0015, 0.0060, 0.0285, 0.1425, 0.3015, 0.4170, 0.4470, 0.5160, 0.6885), *[1.0] * 6]
    assert bonferroni(PUBLISHED_P) == pytest.approx(some, abs=1e-12)
    some = [*(0.0015, 0.0056, 0.0247, 0.1140, 0.2211, 0.2780, 0.2780, 0.2780, 0.3213), *[1.0] * 6]
    assert holm(PUBLISHED_P) == pytest.approx(some, abs=1e-12)
    some = [
        *(0.0015, 0.003, 0.0095, 0.035625, 0.0603, 0.0638571428571, 0.0638571428571, 0.0645, 0.0765),
        *(0.486, 0.5811818181818, 0.714875, 0.7532307692308, 0.8132142857143, 1.0),
    ]
    assert benjamini_hochberg(PUBLISHED_P) == pytest.approx(some, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.randoms())
def test_corrections_are_ordered_and_do_not_depend_on_the_order_of_tests(p, random):
    discovery, stepwise, simple = benjamini_hochberg(p), holm(p), bonferroni(p)
    assert (np.array(p) <= discovery + 1e-12).all() and (discovery <= stepwise + 1e-12).all()
    assert (stepwise <= simple + 1e-12).all() and simple.max() <= 1
    order = list(range(len(p)))
    random.shuffle(order)
    assert holm([p[at] for at in order]) == pytest.approx([stepwise[at] for at in order])


def test_what_is_no_probability_is_refused():
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm([0.5, 1.5])
    with pytest.raises(ValueError, match="at least one"):
        benjamini_hochberg([])
