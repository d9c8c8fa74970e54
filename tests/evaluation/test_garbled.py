import pytest

from laaciq.corpus import language, read_texts
from laaciq.corpus.identification import letters_in_script
from laaciq.evaluation.garbled import garbled
from laaciq.evaluation.generation import prompt_of

TEXTS = read_texts()


def second_half(text, script):
    return text[len(prompt_of(text, script)) :]


@pytest.mark.parametrize("code", TEXTS.languages)
def test_written_text_is_never_garbled(code):
    passages = TEXTS[code]
    script = passages.language.script
    for text in passages.texts:
        assert letters_in_script(text, script) >= 0.95
        assert not garbled(text, script), text
        assert not garbled(second_half(text, script), script), text
    assert not garbled(" ".join(passages.texts), script)


@pytest.mark.parametrize("code", TEXTS.languages)
def test_a_loop_is_garbled(code):
    passages = TEXTS[code]
    script = passages.language.script
    for text in passages.texts[::8]:
        good = text[: len(text) // 4]
        for size in (1, 3, 10, 24):
            unit = text[:size]
            # Cut anywhere, as the token limit does.
            assert garbled(good + unit * 40, script)
            assert garbled((good + unit * 40)[:-1], script)
        for size in (30, 60, 90):
            assert garbled(text[:size] * 3, script)


def test_a_loop_that_has_only_begun_is_garbled_once_it_is_a_quarter():
    good = TEXTS["eng"].texts[0][:120]
    assert not garbled(good + " the end" * 3, "Latin")
    assert garbled(good + " the end" * 5, "Latin")


def test_repetition_as_people_write_it_is_not_garbled():
    assert not garbled(
        "It rained and rained and rained, and nobody had thought of taking an umbrella along....", "Latin"
    )
    assert not garbled("Ha ha ha, said the fox, you will never catch me on this side of the river.", "Latin")


def test_replacement_characters_are_garbled_except_for_a_character_cut_at_the_end():
    text = TEXTS["hin"].texts[0]
    assert garbled(text[:20] + "\ufffd" + text[20:], "Devanagari")
    assert garbled("\ufffd" + text, "Devanagari")
    assert not garbled(text + "\ufffd", "Devanagari")
    # Byte-fallback vocabularies write one for each of the up to three bytes.
    assert not garbled(text + "\ufffd" * 3 + " ", "Devanagari")
    assert garbled(text + "\ufffd" * 4, "Devanagari")
    assert garbled("\ufffd", "Devanagari")


@pytest.mark.parametrize("text", ["", "  \n", "...", "12 345", "!?"])
def test_no_letters_is_garbled(text):
    assert letters_in_script(text, "Latin") == 0
    assert garbled(text, "Latin")


def test_wrong_script_is_garbled():
    alike = {"Han": {"Japanese", "Korean"}}
    scripts = {TEXTS[code].language.script: TEXTS[code].texts[0] for code in TEXTS.languages}
    assert len(scripts) >= 12
    for script, text in scripts.items():
        for other in scripts:
            expected = other != script and other not in alike.get(script, ())
            # Japanese is Kana and Han: how much of each differs from text to text.
            if (script, other) != ("Japanese", "Han"):
                assert garbled(text, other) == expected, (script, other)


def test_scripts_whose_characters_have_other_names():
    assert letters_in_script("ଓଡ଼ିଆ", language("ory").script) == 1
    assert letters_in_script("ᐃᓄᒃᑎᑐᑦ", language("cre").script) == 1
    assert letters_in_script("한국", "Han") == 0
    assert letters_in_script("日本語のテキスト", "Japanese") == 1
    assert letters_in_script("大韓民國", "Korean") == 1
    assert letters_in_script("abcд", "Latin") == 0.75
