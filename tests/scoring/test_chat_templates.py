"""Chat templates of strangers: rendered as transformers renders them, without reach, and only for a while."""

from __future__ import annotations

import time

import pytest
from transformers import PreTrainedTokenizerFast

from laaciq.errors import BadOption, BrokenModel
from laaciq.scoring import chat_templates
from laaciq.scoring.chat_templates import render_chat
from tests.tiny import save_tiny

USUAL = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] | trim }}"
    "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}{{ [1, 2] | tojson }}"
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(save_tiny("llama", tmp_path_factory.mktemp("model")))


def test_the_text_is_that_of_transformers(tokenizer: PreTrainedTokenizerFast) -> None:
    request = [{"role": "user", "content": "Écris. "}]
    for template in (USUAL, {"default": USUAL, "other": "x"}):
        tokenizer.chat_template = template
        expected = tokenizer.apply_chat_template(request, add_generation_prompt=True, tokenize=False)
        assert render_chat(tokenizer, "Écris. ") == expected
    tokenizer.chat_template = None
    with pytest.raises(BadOption, match="no chat template"):
        render_chat(tokenizer, "x")


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ self.__init__.__globals__.__builtins__.open('x', 'w') }}",
        "{{ cycler.__init__.__globals__.os.popen('touch x') }}",
        "{{ lipsum.__globals__['os'].system('touch x') }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}{{ os.system('touch x') }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception('no') }}",
        "{{ x }",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 'a' * 10 ** 7 }}",
    ],
)
def test_a_template_reaches_nothing(tokenizer: PreTrainedTokenizerFast, template: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    tokenizer.chat_template = template
    with pytest.raises(BrokenModel, match=r"chat template of this tokenizer cannot be rendered .*leave out --chat"):
        render_chat(tokenizer, "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
        "{{ 9 ** (9 ** 9) }}",
    ],
)
def test_a_template_that_does_not_end_is_ended(
    tokenizer: PreTrainedTokenizerFast, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_templates, "_RENDERING_SECONDS", 1.0)
    tokenizer.chat_template = "a"
    render_chat(tokenizer, template)  # the process is there
    tokenizer.chat_template = template
    began = time.monotonic()
    with pytest.raises(BrokenModel, match="did not end within 1 s"):
        render_chat(tokenizer, "x")
    assert time.monotonic() - began < 30
    tokenizer.chat_template = "b"
    monkeypatch.setattr(chat_templates, "_RENDERING_SECONDS", 60.0)
    assert render_chat(tokenizer, "y") == "b"


def test_a_template_that_fills_the_memory_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer.chat_template = f"{{{{ 'a' * {chat_templates._MEMORY_BYTES} }}}}"
    with pytest.raises(BrokenModel, match="MemoryError"):
        render_chat(tokenizer, "x")
