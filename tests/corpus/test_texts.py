from hypothesis import given
from hypothesis import strategies as st

import laaciq

PASSAGES = laaciq.read_split("builtin").test["eng"]


@given(st.integers(1, len(PASSAGES)), st.integers(1, 100))
def test_spread_takes_the_requested_number_evenly(available, most):
    passages = PASSAGES.at(range(available))
    places = [passages.texts.index(text) for text in passages.spread(most).texts]
    assert len(places) == min(most, available)
    assert places[0] == 0
    gaps = [later - earlier for earlier, later in zip(places, [*places[1:], available], strict=True)]
    assert max(gaps) - min(gaps) <= 1


def test_texts_record_whether_spreading_left_passages_out():
    texts = laaciq.read_split("builtin").test.select(["eng", "swa"])
    most = len(texts["eng"])
    assert not texts.sampled and not texts.spread(most).sampled
    assert texts.spread(most - 1).sampled and texts.spread(2).select(["eng"]).sampled
