"""Products of bfloat16 matrices on CPUs: which have instructions for them, and how oneDNN is kept from those that a machine lacks."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

# With more than this, oneDNN runs instructions in bfloat16 that some machines announce and do not have: the process dies.
SAFE_BFLOAT16 = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}


def keep_onednn_safe() -> None:
    """To be called before the first model runs, because oneDNN reads its settings at its first product. What the user has set stays."""
    os.environ.update(SAFE_BFLOAT16 | os.environ)


@cache
def cpu_multiplies_bfloat16() -> bool:
    """Does this processor have instructions for products in bfloat16?"""
    try:
        return "avx512_bf16" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False  # not Linux
