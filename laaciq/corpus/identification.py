"""Language and script of a text."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable

import langcodes

from laaciq.corpus.languages import language
from laaciq.errors import MissingExtra, UnknownLanguage, install_hint

# How Unicode's character names begin, where that differs from CLDR's name of the script in capitals.
CHARACTER_NAMES = {
    "Bangla": ("BENGALI",),
    "Fraser": ("LISU",),
    "Han": ("CJK",),
    "Japanese": ("CJK", "HIRAGANA", "KATAKANA"),
    "Korean": ("HANGUL", "CJK"),
    "Lanna": ("TAI THAM",),
    "N’Ko": ("NKO",),
    "Odia": ("ORIYA",),
    "Unified Canadian Aboriginal Syllabics": ("CANADIAN SYLLABICS",),
}

# Written without spaces between words. A space in Thai ends a sentence or a clause: models often have nothing to add there.
UNSPACED = {"Han", "Japanese", "Khmer", "Lao", "Myanmar", "Thai", "Tibetan"}
# A continuation has left the language if another is e³ ≈ 20 times as likely. Of 36 built-in languages, cut to 10 characters, the likeliest
# language is the right one for 85 % ("city." looks Czech); the right one is within this bound for 96 %, a wrong one of the same script for
# 3 %. From 30 characters on the bound makes no difference.
DOUBT = 3.0
# Languages that cannot be distinguished in 150 characters. Malay and Indonesian, Bosnian and Croatian and Serbian, and the two Norwegians
# are standards of one language; regional Arabic and Chinese are mostly written like the standard. Short Marathi now and then looks like
# Konkani to the identifier, though no model drifts there.
CLOSE_LANGUAGES = (
    {"ind", "msa"},
    {"bos", "hrv", "srp"},
    {"nno", "nob", "nor"},
    {"ara", "ary", "arz"},
    {"wuu", "yue", "zho"},
    {"gom", "mar"},
)


def letters_in_script(text: str, script: str) -> float:
    """Share of the letters that belong to `script`, named as in `Language.script`; 0 for a text without letters."""
    names = CHARACTER_NAMES.get(script, (script.upper(),))
    letters = [character for character in text if character.isalpha()]
    inside = sum(unicodedata.name(letter, "").startswith(names) for letter in letters)
    return inside / len(letters) if letters else 0.0


def main_script(text: str, usual: str) -> str:
    """The usual script of a language, or the script of its texts if that differs: Serbian in Latin letters, Ancient Greek (Cypriot in CLDR)."""
    scripts = Counter(unicodedata.name(character, "?").split()[0] for character in text if character.isalpha())
    return usual if not scripts or letters_in_script(text, usual) >= 0.5 else scripts.most_common(1)[0][0]


class LanguageIdentifier:
    """py3langid with ISO 639-3 codes."""

    def __init__(self) -> None:
        try:
            import py3langid
        except ImportError:
            raise MissingExtra(f"py3langid is not installed: {install_hint('generate')}") from None
        # Every language that it knows, best first, each with the logarithm of its likelihood.
        self._rank: Callable[[str], list[tuple[str, float]]] = py3langid.rank
        self._meaning = {label: _close_to(label) for label, _ in self._rank("")}

    def stays(self, texts: list[str], code: str, script: str) -> list[bool] | None:
        """Whether each text is in the language; None if py3langid does not know the language. Text in another script or without letters
        is not.
        """
        languages = _close_to(code)
        if languages not in self._meaning.values():
            return None
        return [letters_in_script(text, script) >= 0.5 and self._may_be(text, languages) for text in texts]

    def likeliest(self, text: str) -> str | None:
        """Code of the most likely language; None for text without letters or in an unknown language."""
        if not any(character.isalpha() for character in text):
            return None
        label = self._rank(text)[0][0]
        try:
            return language(langcodes.standardize_tag(label, macro=True)).code
        except UnknownLanguage:
            return None

    def _may_be(self, text: str, languages: frozenset[str]) -> bool:
        ranked = self._rank(text)
        log_likelihood = next(score for label, score in ranked if self._meaning[label] == languages)
        return ranked[0][1] - log_likelihood <= DOUBT


def _close_to(name: str) -> frozenset[str]:
    """The language and those that count as the same; empty for the identifier's `zxx`, which stands for no language."""
    try:
        # swh, arb, cmn become what the identifier knows them as: swa, ara, zho.
        code = language(langcodes.standardize_tag(name, macro=True)).code
    except UnknownLanguage:
        return frozenset()
    return frozenset(next((group for group in CLOSE_LANGUAGES if code in group), {code}))
