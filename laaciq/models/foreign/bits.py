"""Codes packed into 32-bit words: B bits each, low bits first, without a gap: a code may straddle two words."""

from __future__ import annotations

import math

import torch

WORD = 32


def packed_words(count: int, bits: int) -> int:
    """Number of words for `count` codes."""
    return math.ceil(count * bits / WORD)


def unpack_words(words: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    """int32 words (rows, ⌈count·B/32⌉) → uint8 codes (rows, count); code i lies in bits i·B to (i+1)·B of its row."""
    # The pattern of places repeats after the fewest codes that fill whole words: one word of eight codes at 4 bits, three of 32 at 3 bits.
    period = math.lcm(bits, WORD)
    wide, long = period // WORD, period // bits
    words = torch.nn.functional.pad(words, (0, -words.shape[1] % wide))
    codes = torch.empty(len(words), words.shape[1] // wide * long, dtype=torch.uint8, device=words.device)
    for lane in range(long):
        word, shift = divmod(lane * bits, WORD)
        # An arithmetic shift brings copies of the sign in from above: they are masked away.
        inside = min(bits, WORD - shift)
        code = (words[:, word::wide] >> shift) & (2**inside - 1)
        if inside < bits:
            code |= (words[:, word + 1 :: wide] & (2 ** (bits - inside) - 1)) << inside
        codes[:, lane::long] = code
    return codes[:, :count]
