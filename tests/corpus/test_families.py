from laaciq.corpus import language, read_split
from laaciq.corpus.families import _BY_CODE, _CODES, family


def test_every_built_in_language_has_a_family():
    assert all(family(code) for code in read_split("builtin", seed=0).test.languages)


def test_codes_are_those_of_languages_and_stand_once():
    assert sum(len(codes.split()) for codes in _CODES.values()) == len(_BY_CODE)
    assert all(language(code).code == code for code in _BY_CODE)


def test_relatives_are_together_and_strangers_have_none():
    assert family("hin") == family("deu") == "Indo-European"
    assert family("fin") == family("hun") != family("tur")
    assert family("eus") == "Basque"
    assert family("tlh") is None
