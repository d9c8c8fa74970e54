"""Text that others wrote, such as the names of models, tensors and folders, made inert: one function per medium.

Ordinary names pass unchanged. Nothing else in the package escapes or quotes for people or programs.
"""

from __future__ import annotations

import csv
import html
import io
import json
import re
import shlex
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

# Control and format characters, lone surrogates, and separators of lines and paragraphs.
_ACTIVE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Format characters within words of Persian and Indic scripts, and within emoji.
_JOINERS = "\u200c\u200d"
_ZERO_WIDTH_SPACE = "&#8203;"
# A cell that begins with one of these is a formula to a spreadsheet; some read the wide forms too.
_FORMULA = tuple("=+-@＝＋－＠")
# An interval such as [2.8, 3.7] stays as it is: brackets around at least one digit and no letter that no link or definition follows.
_MARKDOWN = re.compile(
    r"""
      (?P<backslash> [\\`*_<|~&$] | \[(?! [^\[\]a-zA-Z]* \d [^\[\]a-zA-Z]* \] (?![(\[:]) ) )
    | (?P<backslash_first> \A (?: \#{1,6}(?=\s|\Z) | > | [-+](?=[\s-]|\Z) ) )
    | (?P<numbered> \A \d{1,9} (?=[.)](?:\s|\Z)) )
    | (?P<linked> @ | :(?=//) | www(?=\.) )
    """,
    re.VERBOSE,
)


def printable(text: str) -> str:
    """For a terminal: in one line, and without characters that move the cursor, start an escape sequence or turn the direction of writing.
    Each of these is shown as an escape such as \\x1b."""
    return text if text.isprintable() else "".join(_visible(c) if _is_active(c) else c for c in text)


def html_text(text: str) -> str:
    """For HTML, in an element or between the quotes of an attribute."""
    return html.escape(printable(text))


def markdown_text(text: str) -> str:
    """For a line of Markdown, or a part of one: no markup, no link, no mention of a user."""
    return _MARKDOWN.sub(_in_markdown, printable(" ".join(text.split())))


def markdown_code(text: str) -> str:
    """As code within a line of Markdown."""
    one_line = printable(" ".join(text.split()))
    fence = "`" * (_longest_run(one_line) + 1)
    padding = " " if "`" in one_line else ""
    return f"{fence}{padding}{one_line}{padding}{fence}"


def markdown_block(text: str, language: str = "sh") -> str:
    """As a block of code in Markdown. Lines stay."""
    lines = "\n".join(map(printable, text.split("\n")))
    fence = "`" * max(3, _longest_run(lines) + 1)
    return f"{fence}{language}\n{lines}\n{fence}"


def yaml_text(content: Mapping[str, Any]) -> str:
    """A mapping as YAML, which reads back as the same values."""
    text = yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True)
    if all(line == printable(line) for line in text.split("\n")):
        return text
    return yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=False)


def json_text(document: str) -> str:
    """A JSON document for a terminal: the same lines and the same values."""
    return "\n".join(
        line if line.isprintable() else "".join(_json_escape(c) if _is_active(c) else c for c in line)
        for line in document.split("\n")
    )


def csv_text(rows: Iterable[Iterable[str]]) -> str:
    """Rows as CSV for a spreadsheet: no cell is a formula, since one that would begin like it begins with an apostrophe."""
    written = io.StringIO()
    csv.writer(written).writerows([_csv_cell(cell) for cell in row] for row in rows)
    # By the mark at the beginning, spreadsheets know that it is UTF-8.
    return f"\ufeff{written.getvalue()}"


def python_text(text: str) -> str:
    """A string as a literal of Python."""
    return printable(json.dumps(text, ensure_ascii=False))


def shell_command(words: Iterable[str]) -> str:
    """A command line to copy into a shell: every word arrives as it is, and nothing is expanded."""
    return " ".join(map(_shell_word, words))


def command_words(command: str) -> list[str]:
    """The words of a command line that a file records. What would end the command or start another is part of a word."""
    try:
        return shlex.split(command)
    except ValueError:  # a quotation without an end
        return [command]


def shown_command(command: str) -> str:
    """A command line that a file records, to copy into a shell."""
    return shell_command(command_words(command))


def _csv_cell(text: str) -> str:
    shown = "\n".join(map(printable, text.split("\n")))
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA) else shown


def _is_active(character: str) -> bool:
    return unicodedata.category(character) in _ACTIVE_CATEGORIES and character not in _JOINERS


def _visible(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))


def _in_markdown(match: re.Match[str]) -> str:
    matched = match.group()
    if match.lastgroup == "linked":
        return f"{matched}{_ZERO_WIDTH_SPACE}"
    return f"{matched}\\" if match.lastgroup == "numbered" else f"\\{matched}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def _shell_word(word: str) -> str:
    if word == printable(word):
        # zsh replaces =name by the path of that program.
        return f"'{word}'" if re.fullmatch(r"=[\w@%+=:,./-]*", word) else shlex.quote(word)
    return f"$'{''.join(map(_shell_escape, word))}'"


def _shell_escape(character: str) -> str:
    """Within $'…', which bash, zsh and ksh know."""
    if not _is_active(character):
        return f"\\{character}" if character in "\\'" else character
    # Python reads the bytes of a file name that are not UTF-8 as these surrogates.
    errors = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors=errors))
