import pytest

from laaciq.corpus import language, read_texts
from laaciq.corpus.identification import LanguageIdentifier

TEXTS = read_texts()
IDENTIFIER = LanguageIdentifier()


def share(texts, code):
    stays = IDENTIFIER.stays(texts, code, language(code).script)
    return None if stays is None else sum(stays) / len(texts)


@pytest.mark.parametrize("code", TEXTS.languages)
def test_languages_are_identified(code):
    """On second halves, some 70 characters: the identifier is wrong about one in a hundred."""
    halves = [text[len(text) // 2 :] for text in TEXTS[code].texts]
    assert share(halves, code) >= 0.98
    foreign = "eng" if code != "eng" else "fra"
    assert share([text[len(text) // 2 :] for text in TEXTS[foreign].texts], code) <= 0.02


def test_codes_that_mean_the_same_language():
    assert share(list(TEXTS["ind"].texts), "msa") >= 0.98
    assert share(list(TEXTS["swa"].texts), "swh") >= 0.98
    assert share(list(TEXTS["zho"].texts), "cmn") >= 0.98


def test_a_few_letters_are_given_the_benefit_of_the_doubt():
    assert share(["city.", "fish."], "eng") == 1
    assert share(["", "..."], "eng") == 0
    assert share(["i..."], "mya") == 0


def test_unknown_to_the_identifier():
    assert share(["Aloha mai kākou i kēia lā."], "haw") is None
