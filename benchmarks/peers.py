"""The peers of the frontier, how rows of it are named, and the sizes of our plans beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Track = Literal["blocks", "model"]
CalibrationText = Literal["English", "all languages"]
ENGLISH: CalibrationText = "English"
ALL: CalibrationText = "all languages"
THEIR_GPTQ, OUR_GPTQ = "llmcompressor GPTQ 4 bits, all languages", "our GPTQ alone, 4 bits, all languages"


@dataclass(frozen=True)
class Peer:
    """A back end at one setting. `texts` is what it is calibrated on, None where it reads no text."""

    name: str
    backend: str
    bits: int
    texts: CalibrationText | None = None

    @property
    def row(self) -> str:
        return f"{self.name}, {self.texts}" if self.texts else self.name


PEERS = [
    Peer("NF4", "nf4", 4),
    Peer("HQQ 4 bits", "hqq", 4),
    Peer("HQQ 3 bits", "hqq", 3),
    *(
        Peer(f"llmcompressor {method} {bits} bits", f"llmcompressor-{method.lower()}", bits, texts)
        for method, bits in (("GPTQ", 4), ("GPTQ", 3), ("AWQ", 4))
        for texts in (ENGLISH, ALL)
    ),
]


class Sized(Protocol):
    @property
    def block_bits_per_weight(self) -> float: ...

    @property
    def model_bits_per_weight(self) -> float: ...


def size_of(row: Sized, track: Track) -> float:
    return row.block_bits_per_weight if track == "blocks" else row.model_bits_per_weight


def our_sizes(sizes: list[float]) -> list[float]:
    """Sizes of our plans: those of the peers, but where two differ by less than one in a hundred, the smaller one serves both."""
    chosen: list[float] = []
    for size in sorted(sizes):
        if not chosen or size > 1.01 * chosen[-1]:
            chosen.append(round(size - 5e-5, 4))
    return chosen


def our_row(track: Track, size: float) -> str:
    return f"ours, {track}, {size:.4f} bits"
