"""LA-ACIQ: quantize multilingual language models so that no language pays for the others.

`laaciq.run(...)` does it all; `laaciq.plan(...)` plans, `laaciq.quantize(...)` writes a checkpoint; `laaciq.evaluate(...)` measures a model
that is quantized already, `laaciq.compare(...)` sets libraries and our methods side by side; `laaciq.check(...)` judges a run,
`laaciq.card(...)` writes its model card. Once this package is imported, transformers loads our checkpoints.
"""

from types import ModuleType
from typing import TYPE_CHECKING

import wrapt

from laaciq import reference
from laaciq.errors import LaaciqError
from laaciq.lazy import lazy_names
from laaciq.version import __version__

if TYPE_CHECKING:
    from laaciq.commands.bench import bench
    from laaciq.commands.card import card
    from laaciq.commands.check import check
    from laaciq.commands.compare import compare
    from laaciq.commands.evaluate import evaluate
    from laaciq.commands.export import export
    from laaciq.commands.gateway import gateway
    from laaciq.commands.generate import generate
    from laaciq.commands.imatrix import imatrix
    from laaciq.commands.intervene import intervene
    from laaciq.commands.mixture import mixture
    from laaciq.commands.plan import plan
    from laaciq.commands.profile import profile
    from laaciq.commands.quantize import quantize
    from laaciq.commands.rating_sheet import rating_sheet
    from laaciq.commands.ratings import ratings
    from laaciq.commands.run import run
    from laaciq.commands.run_lab import run_lab
    from laaciq.commands.screen import screen
    from laaciq.commands.sensitivity import sensitivity
    from laaciq.commands.survey import survey
    from laaciq.commands.sweep import sweep
    from laaciq.commands.task_results import task_results
    from laaciq.commands.tasks import tasks
    from laaciq.corpus import read_split, read_texts

__all__ = [
    "LaaciqError",
    "__version__",
    "bench",
    "card",
    "check",
    "compare",
    "evaluate",
    "export",
    "gateway",
    "generate",
    "imatrix",
    "intervene",
    "mixture",
    "plan",
    "profile",
    "quantize",
    "rating_sheet",
    "ratings",
    "read_split",
    "read_texts",
    "reference",
    "run",
    "run_lab",
    "screen",
    "sensitivity",
    "survey",
    "sweep",
    "task_results",
    "tasks",
]

# Importing torch and transformers takes seconds: a verb is imported when it is first used.
_READERS = {"read_split", "read_texts"}
_VERBS = set(__all__) - _READERS - {"LaaciqError", "__version__", "reference"}
__getattr__ = lazy_names(
    __name__, {verb: f"laaciq.commands.{verb}" for verb in _VERBS} | dict.fromkeys(_READERS, "laaciq.corpus")
)


def __dir__() -> list[str]:
    return __all__


# At once if transformers is imported already, else when it is: so that importing laaciq stays quick.
@wrapt.when_imported("transformers.quantizers.auto")
def _let_transformers_load_our_checkpoints(auto: ModuleType) -> None:
    from laaciq.transformers_plugin import register

    register(auto)
