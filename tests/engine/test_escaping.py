"""Names from strangers do nothing in any medium, and ordinary names stay as they are."""

from __future__ import annotations

import ast
import csv
import io
import json
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
import yaml
from huggingface_hub import ModelCard
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from laaciq.engine.escaping import (
    csv_text,
    html_text,
    json_text,
    markdown_block,
    markdown_code,
    markdown_text,
    printable,
    python_text,
    shell_command,
    shown_command,
    yaml_text,
)
from tests.payloads import PAYLOADS, assert_inert

ORDINARY = ("org/model-7b", "self_attn.q_proj", "Åse Größe", "हिन्दी", "日本語", "می‌خواهم", "x (1)", "50 %")
every_payload = pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
# As GitHub and the hub read it: with tables, and with addresses that become links by themselves.
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def test_ordinary_names_stay():
    for name in ORDINARY:
        assert printable(name) == html_text(name) == name
        assert ast.literal_eval(python_text(name)) == name
        assert yaml.safe_load(yaml_text({"name": name})) == {"name": name}
        assert MARKDOWN.renderInline(markdown_text(name)) == name
    assert markdown_text("3.2 % [2.8, 3.7], -1.0 % [-2.5, 0.1]") == "3.2 % [2.8, 3.7], -1.0 % [-2.5, 0.1]"
    assert shell_command(["laaciq", "run", "a b", "x=1"]) == "laaciq run 'a b' x=1"


@every_payload
def test_a_terminal_shows_it_in_one_line(payload):
    assert_inert(printable(payload))
    assert "\n" not in printable(payload)
    assert printable(printable(payload)) == printable(payload)


class Html(HTMLParser):
    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags, self.text, self.labels = [], "", []
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, [name for name, _ in attrs]))
        self.labels += [value for _, value in attrs]

    def handle_data(self, data):
        self.text += data


@every_payload
def test_html_shows_it_in_elements_and_attributes(payload):
    read = Html(f'<p title="{html_text(payload)}">{html_text(payload)}</p>')
    assert read.tags == [("p", ["title"])]
    assert read.text == read.labels[0] == printable(payload)
    assert_inert(html_text(payload))


def kinds(tokens) -> set[str]:
    return {token.type for top in tokens for token in [top, *(top.children or [])]}


@every_payload
def test_markdown_shows_it_as_text(payload):
    """At the start of a paragraph or item, within a sentence, in a cell."""
    shown = markdown_text(payload)
    assert_inert(shown)
    assert "\n" not in shown
    source = f"{shown}\n\n- {shown}\n\nA sentence with {shown}.\n\n| a | b |\n| --- | --- |\n| {shown} | c |\n"
    tokens = MARKDOWN.parse(source)
    plain = MARKDOWN.parse("x\n\n- x\n\nA sentence with x.\n\n| a | b |\n| --- | --- |\n| x | c |\n")
    assert [t.type for t in tokens] == [t.type for t in plain]
    # A reader shows these as text.
    assert kinds(tokens) - kinds(plain) <= {"text_special"}
    text = "".join(child.content for child in tokens[1].children).replace("\u200b", "")
    assert text == printable(" ".join(payload.split()))


@every_payload
def test_markdown_makes_no_link_of_addresses_and_no_mention(payload):
    rendered = "".join(child.content for child in MARKDOWN.parse(markdown_text(payload))[1].children)
    assert not any(active in rendered for active in ("://", "www.", "@e", "@S"))


@every_payload
def test_markdown_shows_it_as_code(payload):
    (span,) = MARKDOWN.parse(f"{markdown_code(payload)}\n")[1].children
    assert (span.type, span.content) == ("code_inline", printable(" ".join(payload.split())))
    (block,) = MARKDOWN.parse(f"{markdown_block(payload)}\n")
    assert block.type == "fence"
    assert_inert(markdown_block(payload))


@every_payload
def test_yaml_reads_back_the_same(payload):
    content = {"name": payload, "list": [payload], payload: "key"}
    if payload == PAYLOADS["surrogate"]:
        content = {"name": "a"}  # YAML has no lone surrogates, and neither has a file
    assert_inert(yaml_text(content))
    assert yaml.safe_load(yaml_text(content)) == content
    card = ModelCard(f"---\n{yaml_text(content)}---\n\n# Title")
    assert card.data.to_dict() == content
    assert card.text.strip() == "# Title"


@every_payload
def test_json_means_the_same(payload):
    document = json.dumps({"name": payload}, ensure_ascii=False, indent=1)
    assert_inert(json_text(document))
    assert json.loads(json_text(document)) == {"name": payload}


@every_payload
def test_python_reads_back_the_same(payload):
    assert_inert(python_text(payload))
    assert "\n" not in python_text(payload)
    assert ast.literal_eval(python_text(payload)) == payload


@pytest.mark.parametrize("shell", [name for name in ("bash", "zsh") if shutil.which(name)])
def test_a_shell_passes_every_word_on_as_it_is(shell, tmp_path):
    words = [word for name, word in PAYLOADS.items() if name not in ("nothing", "surrogate")] + ["", "a\udcffb"]
    command = shell_command(["printf", "%s\\0", "first", *words])
    assert_inert(command)
    assert "\n" not in command
    printed = subprocess.run([shell, "-c", command], capture_output=True, check=True, cwd=tmp_path).stdout
    assert printed.split(b"\0")[1:-1] == [word.encode(errors="surrogateescape") for word in words]
    assert list(tmp_path.iterdir()) == []


def test_a_recorded_command_is_quoted_again(tmp_path):
    """Whatever a file holds in the place of a command: the shell starts one program, and that gets the rest as words."""
    for payload in PAYLOADS.values():
        command = shown_command(f"true laaciq run {payload}")
        assert_inert(command)
        assert "\n" not in command
        subprocess.run(["bash", "-c", command], check=False, cwd=tmp_path, capture_output=True, timeout=10)
    assert list(tmp_path.iterdir()) == []
    assert shown_command("laaciq run 'a b' --bits 3") == "laaciq run 'a b' --bits 3"


@given(st.text())
def test_any_text(text):
    for shown in (printable(text), html_text(text), markdown_text(text), python_text(text), shell_command([text])):
        assert_inert(shown)
        assert "\n" not in shown
    assert ast.literal_eval(python_text(text)) == text
    document = json.dumps(text, ensure_ascii=False)
    assert json.loads(json_text(document)) == text


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "\n=1", "＝1", "\t=1", "a\x1b[31m"])
def test_no_cell_of_a_spreadsheet_is_a_formula(cell):
    text = csv_text([["item", "text"], ["1", cell]])
    (_, (_, read)) = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""))
    assert not read.lstrip().startswith(("=", "+", "-", "@", "＝", "\t"))
    assert "\x1b" not in read


def test_cells_read_back():
    rows = [["plain", 'a "quoted", b'], ["two\nlines", "Ünï — हिन्दी"]]
    assert list(csv.reader(io.StringIO(csv_text(rows).removeprefix("\ufeff"), newline=""))) == rows
