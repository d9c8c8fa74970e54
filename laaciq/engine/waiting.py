"""How long torch's threads wait for each other before they give the processor to others."""

from __future__ import annotations

import os

# Turns of a loop, some 40 µs. The usual 300,000 are 10 ms, for which a thread holds a processor that the one it waits for may need.
_TURNS = {"GOMP_SPINCOUNT": "1000"}


def wait_briefly() -> None:
    """To be called before torch is imported, because OpenMP reads its settings when it is loaded. It costs nothing on a quiet machine, and
    saves a third of the time beside one busy program on two cores. What the user has set stays.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.update(_TURNS | os.environ)
