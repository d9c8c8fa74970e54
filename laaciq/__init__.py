"""LA-ACIQ: quantize multilingual language models so that no language pays for the others.

`laaciq.run(...)` does it all; `laaciq.evaluate(...)` measures a model that is quantized already; `laaciq.check(...)` judges a run.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from laaciq import reference
from laaciq.errors import LaaciqError

if TYPE_CHECKING:
    from laaciq.chain import evaluate, run
    from laaciq.corpus import read_split, read_texts
    from laaciq.gate import check
    from laaciq.inspection import profile, screen, survey

__version__ = "0.1.0"

__all__ = [
    "LaaciqError",
    "__version__",
    "check",
    "evaluate",
    "profile",
    "read_split",
    "read_texts",
    "reference",
    "run",
    "screen",
    "survey",
]

# Importing torch and transformers takes seconds; what needs them is imported when it is first used.
_LAZY = {
    "check": "laaciq.gate",
    "evaluate": "laaciq.chain",
    "profile": "laaciq.inspection",
    "read_split": "laaciq.corpus",
    "read_texts": "laaciq.corpus",
    "run": "laaciq.chain",
    "screen": "laaciq.inspection",
    "survey": "laaciq.inspection",
}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'laaciq' has no attribute {name!r}")
