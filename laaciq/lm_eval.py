"""Lets lm-evaluation-harness load our checkpoints: `import laaciq.lm_eval`, then model `laaciq`; `laaciq lm-eval` does so for its command line.

The harness finds models by name among those that were registered, and has no other door for foreign packages.
"""

from __future__ import annotations

import sys
from typing import Any

from laaciq.errors import BadOption, MissingExtra

try:
    from lm_eval.__main__ import cli_evaluate
    from lm_eval.api.registry import register_model
    from lm_eval.models.huggingface import HFLM
except ImportError as error:
    raise MissingExtra(f"lm-evaluation-harness cannot be used ({error}): pip install 'laaciq[lm-eval]'") from None


@register_model("laaciq")
class LaaciqLM(HFLM):
    """The harness's own model `hf`, which needs no more than that this package was imported; and for checkpoints with tables of scales by
    language, the `language` whose table is used."""

    def __init__(self, pretrained: Any, language: str | None = None, **options: Any) -> None:
        super().__init__(pretrained, **options)
        if language is None:
            return
        switch = getattr(self.model, "language", None)
        if switch is None:
            raise BadOption(f"language={language} was given, but {pretrained} is no checkpoint of laaciq: leave it out")
        # Held for as long as the model lives: the shared scales come back when it ends.
        self._speaking = switch(language)
        self._speaking.__enter__()


def command_line(words: list[str]) -> None:
    """The harness's own, which reads the words that the process was started with."""
    sys.argv = ["lm-eval", *words]
    cli_evaluate()
