"""Names that a stranger might choose: each would do something in some medium if it were not made inert."""

PAYLOADS = {
    "script": "<script>alert(1)</script>",
    "attribute": "\"><img src=x onerror='alert(1)'>",
    "title": "</title></style></svg><iframe src=//evil.example>",
    "entity": "&lt;b&gt;&#60;i&#62;",
    "link": "[y](javascript:z)",
    "image": "![y](https://evil.example/i.png)",
    "reference": "[y]: https://evil.example",
    "address": "https://evil.example and www.evil.example, <https://evil.example>",
    "mention": "@everyone",
    "cells": "a | b | **c** _d_ ~~e~~ $f$",
    "code": "`a```b``",
    "heading": "# heading",
    "item": "- item",
    "number": "1. item",
    "rule": "---",
    "lines": "a\n\n# heading\n\n---\nlicense: other\n| b |\r\nPASS --max-D 1",
    "yaml": "{a: [b, !!python/object/apply:os.system ['touch x']]} # c: &d *e",
    "boolean": "no",
    "merge": "<<: *x",
    "colour": "\x1b[31mred\x1b[0m",
    "clear": "\x1b[2J\x1b[H",
    "hyperlink": "\x1b]8;;https://evil.example\x1b\\y\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;dG91Y2ggeA==\x07",
    "8 bits": "\x9b31m\x9d0;title\x9c",
    "erase": "good\x08\x08\x08\x08bad\rworse\x7f",
    "direction": "abc\u202egnp.exe\u2066\u2069",
    "separator": "a\u2028b\u2029c\x85d",
    "tags": "a\U000e0041\U000e0042",
    "surrogate": "a\udcffb\ud800c",
    "nothing": "a\x00b",
    "substitution": "$(touch x) `touch x` ${PATH}",
    "second command": "a; touch x & touch x | touch x > x\ntouch x",
    "quotes": 'it\'s "quoted" \\',
    "glob": "* ? [a] ~ {a,b} !! #",
    "option": "--overwrite",
    "program": "=ls",
    "formula": '=HYPERLINK("https://evil.example")',
    "sum": "+1+1",
    "at": "@SUM(1)",
    "markup": "[bold red]x[/] [link=https://evil.example]y[/link] [/nothing]",
    "emoji": ":smile:",
}
# What a terminal acts on, or an editor shows in another order.
_RANGES = (
    *((0x00, 0x1F), (0x7F, 0x9F), (0x61C, 0x61C), (0x200B, 0x200B), (0x200E, 0x200F), (0x2028, 0x202E)),
    *((0x2060, 0x2064), (0x2066, 0x206F), (0xD800, 0xDFFF), (0xFEFF, 0xFEFF), (0xE0020, 0xE007F)),
)
ACTIVE = frozenset(chr(code) for first, last in _RANGES for code in range(first, last + 1))


def assert_inert(text: str) -> None:
    """Nothing in what was printed or written is acted on by a terminal; lines may end."""
    assert not set(text.replace("\n", "")) & ACTIVE, repr(text)
