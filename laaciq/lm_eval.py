"""Our checkpoints in lm-evaluation-harness: `import laaciq.lm_eval` registers the model `laaciq`, and `laaciq lm-eval` runs the harness's
command line with it.

The harness looks models up by name among those that are registered in its process.
"""

from __future__ import annotations

import sys
from typing import Any

from laaciq.errors import BadOption, MissingExtra, install_hint

try:
    from lm_eval.__main__ import cli_evaluate
    from lm_eval.api.registry import register_model
    from lm_eval.models.huggingface import HFLM
except ImportError as error:
    raise MissingExtra(f"lm-evaluation-harness cannot be imported ({error}): {install_hint('lm-eval')}") from None


@register_model("laaciq")
class LaaciqLM(HFLM):
    """The harness's model `hf` with one more option: `language` selects the scales of that language in a checkpoint that has them."""

    def __init__(self, pretrained: Any, language: str | None = None, **options: Any) -> None:
        super().__init__(pretrained, **options)
        if language is None:
            return
        switch = getattr(self.model, "language", None)
        if switch is None:
            raise BadOption(f"language={language} needs a laaciq checkpoint, and {pretrained} is not one: leave it out")
        # Entered and never left: the model keeps these scales for as long as it lives.
        self._language_scales = switch(language)
        self._language_scales.__enter__()


def command_line(arguments: list[str]) -> None:
    """Run the harness's command line, which reads `sys.argv`."""
    sys.argv = ["lm-eval", *arguments]
    cli_evaluate()
