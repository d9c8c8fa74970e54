"""LA-ACIQ: quantize multilingual language models so that no language pays for the others.

`laaciq.run(...)` does it all; `laaciq.plan(...)` plans, `laaciq.quantize(...)` writes a checkpoint; `laaciq.evaluate(...)` measures a model
that is quantized already, `laaciq.compare(...)` sets libraries and our methods side by side; `laaciq.check(...)` judges a run,
`laaciq.card(...)` writes its model card. Once this package is imported, transformers loads our checkpoints.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import wrapt

from laaciq import reference
from laaciq.errors import LaaciqError

if TYPE_CHECKING:
    from laaciq.assessment import evaluate
    from laaciq.chain import run
    from laaciq.comparison import compare
    from laaciq.compression import quantize
    from laaciq.corpus import read_split, read_texts
    from laaciq.exporting import export
    from laaciq.exporting.llama_quantize import imatrix
    from laaciq.gate import check
    from laaciq.harness import tasks
    from laaciq.inspection import profile, screen, survey
    from laaciq.interventions import calibration, gateway, sensitivity, sweep
    from laaciq.plans import plan
    from laaciq.publishing import card
    from laaciq.serving import generate
    from laaciq.speed import bench

__version__ = "0.1.0"

__all__ = [
    "LaaciqError",
    "__version__",
    "bench",
    "calibration",
    "card",
    "check",
    "compare",
    "evaluate",
    "export",
    "gateway",
    "generate",
    "imatrix",
    "plan",
    "profile",
    "quantize",
    "read_split",
    "read_texts",
    "reference",
    "run",
    "screen",
    "sensitivity",
    "survey",
    "sweep",
    "tasks",
]

# Importing torch and transformers takes seconds; what needs them is imported when it is first used.
_LAZY = {
    "bench": "laaciq.speed",
    "card": "laaciq.publishing",
    "check": "laaciq.gate",
    "sweep": "laaciq.interventions",
    "sensitivity": "laaciq.interventions",
    "gateway": "laaciq.interventions",
    "calibration": "laaciq.interventions",
    "compare": "laaciq.comparison",
    "evaluate": "laaciq.assessment",
    "export": "laaciq.exporting",
    "generate": "laaciq.serving",
    "imatrix": "laaciq.exporting.llama_quantize",
    "plan": "laaciq.plans",
    "profile": "laaciq.inspection",
    "quantize": "laaciq.compression",
    "read_split": "laaciq.corpus",
    "read_texts": "laaciq.corpus",
    "run": "laaciq.chain",
    "screen": "laaciq.inspection",
    "survey": "laaciq.inspection",
    "tasks": "laaciq.harness",
}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'laaciq' has no attribute {name!r}")


# At once if transformers is imported already, else when it is: so that importing laaciq stays quick.
@wrapt.when_imported("transformers.quantizers.auto")
def _let_transformers_load_our_checkpoints(auto: ModuleType) -> None:
    from laaciq.transformers_plugin import register

    register(auto)
