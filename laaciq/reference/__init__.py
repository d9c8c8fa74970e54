"""The embedded reference model, figures of its training variants, and the texts written for this project.

`AutoModelForCausalLM.from_pretrained(laaciq.reference.path())` loads the model. What it is, how it was made and what it is not
good for stands in `README.md` beside this file.
"""

from __future__ import annotations

import json
from pathlib import Path

_HERE = Path(__file__).parent
# Not in the training text: they show what "not served" looks like.
LEFT_OUT = ("amh", "hau", "mya", "tel")


def path() -> Path:
    """Folder of the reference model, a standard transformers checkpoint."""
    return _HERE / "model"


def texts_path() -> Path:
    """Folder of the parallel passages: `calibration/` and `test/`."""
    return _HERE / "texts"


def variants_path() -> Path:
    """Figures of the training variants, as `recipes/measure_variants.py` wrote them."""
    return _HERE / "variants.json"


def languages() -> list[str]:
    """The languages that the model is measured on by default, sorted: those that it was trained on, and those that were left out on purpose."""
    return sorted([*exposure(), *LEFT_OUT])


def exposure() -> dict[str, int]:
    """Tokens of each language that the reference model saw in training."""
    table = json.loads((path() / "languages.json").read_text())
    return {row["language"]: row["exposure_tokens"] for row in table}
