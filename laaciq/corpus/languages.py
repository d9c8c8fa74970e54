"""Languages by ISO 639-3 code: `en`, `eng` and `English` are all `eng`.

Codes, names and scripts come from `langcodes` (Unicode CLDR and the IANA registry).
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache

import langcodes
from language_data.population_data import LANGUAGE_SPEAKING_POPULATION

from laaciq.engine.input_files import is_text
from laaciq.errors import UnknownLanguage

# ISO 639 codes for "no particular language".
_NOT_A_LANGUAGE = {"mis", "mul", "und", "zxx"}
# No name of a language has more characters.
_LONGEST = 100


@dataclass(frozen=True, order=True)
class Language:
    """A language: ISO 639-3 code, English name and usual script."""

    code: str
    name: str
    script: str


@cache
def language(name: str) -> Language:
    """The language for a code of two or three letters, a tag such as `pt-BR`, or a name in English or in the language itself."""
    stripped = name.strip()
    tag = (_by_code(stripped) or _by_name(stripped)) if is_text(stripped) and len(stripped) <= _LONGEST else None
    if tag is None:
        raise UnknownLanguage(
            f"unknown language {name[:_LONGEST]!r}{_suggestion(stripped[:_LONGEST])}; give an ISO 639-3 code such as 'swa'"
        )
    return Language(
        code=tag.to_alpha3(),
        name=langcodes.Language.make(language=tag.language).display_name(),
        script=_script(tag),
    )


def _script(tag: langcodes.Language) -> str:
    likely = tag.maximize()
    # CLDR names these two "Simplified" and "Traditional".
    return "Han" if likely.script in ("Hans", "Hant") else likely.script_name()


def _by_code(code: str) -> langcodes.Language | None:
    try:
        tag = langcodes.Language.get(code)
        alpha3 = tag.to_alpha3()
        # qaa to qtz are for private use.
        known = tag.is_valid() and alpha3 not in _NOT_A_LANGUAGE and not "qaa" <= alpha3 <= "qtz"
    except (langcodes.LanguageTagError, LookupError):
        return None
    return tag if known else None


def _by_name(name: str) -> langcodes.Language | None:
    try:
        # As `_by_code`: "Tagalog" and `tgl` are both Filipino.
        return langcodes.Language.get(langcodes.find(name).to_tag()) if name else None
    except LookupError:
        return None


def _suggestion(name: str) -> str:
    tags = (tag for tag in LANGUAGE_SPEAKING_POPULATION if "-" not in tag and tag not in _NOT_A_LANGUAGE)
    tags_by_name = {langcodes.Language.get(tag).display_name().lower(): tag for tag in tags}
    near = difflib.get_close_matches(name.lower(), tags_by_name, n=1, cutoff=0.75)
    return f" (did you mean {langcodes.Language.get(tags_by_name[near[0]]).display_name()}?)" if near else ""
