"""Chat templates, rendered in a process of its own. A template is a program in the language Jinja that comes with the model. transformers runs
it in a sandbox, where it reaches no file and no module; but it may loop for ever or fill the memory. Here that ends the process, and no more.

The process is `python -m laaciq.scoring.chat_templates`: one line of JSON per request, one per answer.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from threading import Timer
from typing import Any

from laaciq.engine.processes import start_module
from laaciq.errors import BadOption, BrokenModel

# To import transformers on a slow machine; and to render one template, which takes milliseconds.
_STARTING_SECONDS, _RENDERING_SECONDS = 300.0, 20.0
# Address space of the process, with all libraries.
_MEMORY_BYTES = 2**31
# The text before a passage; windows of models are shorter.
_MOST_CHARACTERS = 200_000


def render_chat(tokenizer: Any, request: str) -> str:
    """A user's request, and the start of the answer, in the form that the tokenizer's chat template gives them."""
    if not getattr(tokenizer, "chat_template", None):
        raise BadOption("this tokenizer has no chat template: leave out --chat")
    roles = {name: str(token) for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
    return _rendered(tokenizer.get_chat_template(), tuple(sorted(roles.items())), request)


@cache
def _rendered(template: str, roles: tuple[tuple[str, str], ...], request: str) -> str:
    answer = _renderer().answer({"template": template, "roles": dict(roles), "request": request})
    if answer is None:
        _renderer.cache_clear()
        problem = f"did not end within {_RENDERING_SECONDS:g} s or took too much memory"
    elif "error" in answer:
        problem = f"cannot be rendered ({answer['error']})"
    else:
        return answer["text"]
    raise BrokenModel(f"the chat template of this tokenizer {problem}: leave out --chat, or correct the template")


@cache
def _renderer() -> _Renderer:
    return _Renderer()


class _Renderer:
    """The process, for as long as it answers in time. It ends with this one, at the end of its standard input."""

    def __init__(self) -> None:
        self._child = start_module(
            "laaciq.scoring.chat_templates", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._read(_STARTING_SECONDS)

    def answer(self, request: Mapping[str, object]) -> dict[str, str] | None:
        """None if the process was ended."""
        if self._child.stdin is None:
            return None
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
        line = self._read(_RENDERING_SECONDS)
        return json.loads(line) if line else None

    def _read(self, seconds: float) -> str:
        timer = Timer(seconds, self._child.kill)
        timer.start()
        try:
            return self._child.stdout.readline() if self._child.stdout else ""
        finally:
            timer.cancel()


def main() -> None:
    """Answer requests until standard input ends."""
    from transformers.utils.chat_template_utils import render_jinja_template

    _limit_memory()
    sys.stdout.write("\n")
    sys.stdout.flush()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            conversation = [{"role": "user", "content": asked["request"]}]
            rendered: Any = render_jinja_template(
                [conversation], chat_template=asked["template"], add_generation_prompt=True, **asked["roles"]
            )
            text = rendered[0][0]
            if len(text) > _MOST_CHARACTERS:
                raise ValueError(f"it gives {len(text):,} characters")
            answer = {"text": text}
        except (Exception, RecursionError) as error:  # whatever the template raises
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):  # not on every system
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))


if __name__ == "__main__":
    main()
