"""Instructions for bfloat16 on CPUs."""

from __future__ import annotations

# With more than this, oneDNN runs instructions in bfloat16 that some machines announce and do not have.
SAFE_BFLOAT16 = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
