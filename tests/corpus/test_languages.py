import pytest

from laaciq.corpus import language
from laaciq.errors import UnknownLanguage


@pytest.mark.parametrize("name", ["en", "eng", "English", "english", "en-GB", " eng "])
def test_codes_and_names_mean_one_language(name):
    assert language(name).code == "eng"


@pytest.mark.parametrize(
    ("name", "code", "script"),
    [
        ("ger", "deu", "Latin"),
        ("zh", "zho", "Han"),
        ("Persian", "fas", "Arabic"),
        ("Bengali", "ben", "Bangla"),
        ("sw", "swa", "Latin"),
        ("amh", "amh", "Ethiopic"),
        ("Kiswahili", "swa", "Latin"),
        ("hau", "hau", "Latin"),
        # CLDR has one entry for both names.
        ("Tagalog", "fil", "Latin"),
        ("tgl", "fil", "Latin"),
    ],
)
def test_code_and_script(name, code, script):
    assert (language(name).code, language(name).script) == (code, script)


@pytest.mark.parametrize("name", ["xyz", "", "q", "README", "und", "mul", "zxx"])
def test_what_is_no_language_is_refused(name):
    with pytest.raises(UnknownLanguage, match="ISO 639-3"):
        language(name)


def test_a_slip_gets_a_suggestion():
    with pytest.raises(UnknownLanguage, match="did you mean Swahili"):
        language("Swahilli")
