from hypothesis import given
from hypothesis import strategies as st

import laaciq

PASSAGES = laaciq.read_split("builtin").test["eng"]


@given(st.integers(1, len(PASSAGES)), st.integers(1, 100))
def test_spread_takes_as_many_as_asked_evenly(there, most):
    own = PASSAGES.at(range(there))
    places = [own.texts.index(text) for text in own.spread(most).texts]
    assert len(places) == min(most, there)
    assert places[0] == 0
    gaps = [later - earlier for earlier, later in zip(places, [*places[1:], there], strict=True)]
    assert max(gaps) - min(gaps) <= 1


def test_texts_record_whether_spreading_left_passages_out():
    texts = laaciq.read_split("builtin").test.select(["eng", "swa"])
    most = len(texts["eng"])
    assert not texts.sampled and not texts.spread(most).sampled
    assert texts.spread(most - 1).sampled and texts.spread(2).select(["eng"]).sampled
