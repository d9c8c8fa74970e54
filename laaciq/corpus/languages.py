"""Languages by ISO 639-3 code: `en`, `eng` and `English` are all `eng`.

Codes, names and scripts come from `langcodes` (Unicode CLDR and the IANA registry).
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache

import langcodes
from language_data.population_data import LANGUAGE_SPEAKING_POPULATION

from laaciq.errors import UnknownLanguage

# ISO 639 codes for "no particular language".
_NOT_A_LANGUAGE = {"mis", "mul", "und", "zxx"}


@dataclass(frozen=True, order=True)
class Language:
    """A language: its ISO 639-3 code, its English name and the script that it is mostly written in."""

    code: str
    name: str
    script: str


@cache
def language(name: str) -> Language:
    """The language that a code of two or three letters, a tag such as `pt-BR`, or an English or own name means."""
    wanted = name.strip()
    found = _by_code(wanted) or _by_name(wanted)
    if found is None:
        raise UnknownLanguage(f"unknown language {name!r}{_suggestion(wanted)}; give an ISO 639-3 code such as 'swa'")
    return Language(
        code=found.to_alpha3(),
        name=langcodes.Language.make(language=found.language).display_name(),
        script=_script(found),
    )


def _script(found: langcodes.Language) -> str:
    likely = found.maximize()
    # CLDR names these two "Simplified" and "Traditional".
    return "Han" if likely.script in ("Hans", "Hant") else likely.script_name()


def _by_code(wanted: str) -> langcodes.Language | None:
    try:
        found = langcodes.Language.get(wanted)
        code = found.to_alpha3()
        # qaa to qtz are for private use.
        known = found.is_valid() and code not in _NOT_A_LANGUAGE and not "qaa" <= code <= "qtz"
    except (langcodes.LanguageTagError, LookupError):
        return None
    return found if known else None


def _by_name(wanted: str) -> langcodes.Language | None:
    try:
        return langcodes.find(wanted) if wanted else None
    except LookupError:
        return None


def _suggestion(wanted: str) -> str:
    tags = (tag for tag in LANGUAGE_SPEAKING_POPULATION if "-" not in tag and tag not in _NOT_A_LANGUAGE)
    names = {langcodes.Language.get(tag).display_name().lower(): tag for tag in tags}
    near = difflib.get_close_matches(wanted.lower(), names, n=1, cutoff=0.75)
    return f" (did you mean {langcodes.Language.get(names[near[0]]).display_name()}?)" if near else ""
