from hypothesis import given
from hypothesis import strategies as st

from laaciq.corpus import Passages, Texts, language, read_split, split

TEXT = st.text(alphabet="abc", min_size=1, max_size=2)


@st.composite
def some_texts(draw):
    """Few distinct texts, so that duplicates are common."""
    codes = draw(st.lists(st.sampled_from(["eng", "swa", "tam"]), min_size=1, max_size=3, unique=True))
    parallel = len(codes) > 1 and draw(st.booleans())
    count = draw(st.integers(1, 20))
    documents = [f"d{draw(st.integers(0, 8))}" for _ in range(count)]
    by_language = {}
    for code in codes:
        passages = count if parallel else draw(st.integers(1, 20))
        names = documents if parallel else [f"d{draw(st.integers(0, 8))}" for _ in range(passages)]
        texts = tuple(draw(TEXT) for _ in range(passages))
        by_language[code] = Passages(language(code), texts, tuple(names))
    return Texts("random", by_language, parallel)


@given(texts=some_texts(), share=st.sampled_from([0.0, 0.3, 0.5, 0.9]), seed=st.integers(0, 3))
def test_parts_never_share_a_text_or_a_document_and_lose_nothing(texts, share, seed):
    parts = split(texts, calibration_share=share, seed=seed)
    everything = [parts.calibration, parts.validation, parts.test]
    for code in texts.languages:
        for get in (lambda p: set(p.texts), lambda p: set(p.documents)):
            sets = [get(part[code]) for part in everything]
            assert sum(len(s) for s in sets) == len(set().union(*sets))
        assert sorted(sum((part[code].texts for part in everything), ())) == sorted(texts[code].texts)


@given(texts=some_texts(), seed=st.integers(0, 3))
def test_alignment_survives_a_split(texts, seed):
    if not texts.parallel:
        return
    for part in vars(split(texts, seed=seed)).values():
        assert len({part[code].documents for code in texts.languages}) == 1


def test_the_same_seed_gives_the_same_split_on_every_machine():
    """Golden: the division rests on SHA-256 of document ids alone, so these ids are the same everywhere."""
    parts = read_split()
    assert parts.validation["eng"].documents == parts.validation["swa"].documents
    assert len(parts.validation["eng"]) == 10
    assert parts.validation["eng"].documents[:3] == ("kitchen-1", "law-1", "sport-2")


def test_adding_a_language_moves_no_passage():
    whole = read_split()
    few = read_split().select(["eng", "swa"])
    assert few.test["swa"] == whole.test["swa"]
    assert few.validation["swa"] == whole.validation["swa"]
