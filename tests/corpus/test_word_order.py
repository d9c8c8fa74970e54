import pytest

import laaciq
from laaciq.corpus import Passages, language
from laaciq.corpus.word_order import CHOICES, cut, questions, wrong_endings
from laaciq.errors import BrokenTexts


@pytest.mark.parametrize("code", laaciq.read_split().test.languages)
def test_one_ending_makes_the_passage_and_none_is_favoured_by_its_letters(code):
    passages = laaciq.read_split().test[code]
    for text, question in zip(passages.texts, questions(passages), strict=True):
        assert [question.start + ending == text for ending in question.endings] == [
            place == question.answer for place in range(CHOICES)
        ]
        assert len(set(question.endings)) == CHOICES
        assert len({"".join(sorted(ending)) for ending in question.endings}) == 1
        # Marks are never torn from their letters.
        assert not any(ending.lstrip()[0] in "\u0301\u0e31\u0e34\u0e48\u093e\u094d" for ending in question.endings)


def test_answers_are_at_every_place():
    assert {question.answer for question in questions(laaciq.read_split().test["eng"])} == set(range(CHOICES))


def test_two_neighbours_change_places():
    assert wrong_endings(" a b c d e f g") == [" b a c d e f g", " a b d c e f g", " a b c d f e g"]


def test_without_spaces_runs_of_letters_do():
    assert wrong_endings("我们今天去山上看花开了吗") == [
        "天去山我们今上看花开了吗",
        "我们今上看花天去山开了吗",
        "我们今天去山开了吗上看花",
    ]
    # Space in front stays there.
    assert wrong_endings(" abcdefghijkl")[0] == " defabcghijkl"


def test_a_virama_ties_letters_together():
    # Burmese stacks the second letter under the first: a cut between them would change both.
    start, end = cut("က" * 3 + "\u1039" + "က" * 4)
    assert not start.endswith("\u1039")
    assert not end.startswith("\u1039")


def test_equal_neighbours_are_no_question():
    wrong = wrong_endings(" a a a a b c d")
    assert " a a a a b c d" not in wrong
    assert len(wrong) == CHOICES - 1


@pytest.mark.parametrize("text", ["", "a", "two words", "aaaa aaaa aaaa aaaa aaaa aaaa aaaa aaaa aaaa"])
def test_too_short_or_too_plain_for_a_question(text):
    with pytest.raises(BrokenTexts, match="too short"):
        questions(Passages(language("eng"), (text,), ("d",)))
