"""AWQ checkpoints for the *gemm* kernel, as AutoAWQ, GPTQModel and AutoRound write them: outputs packed along the rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from laaciq.errors import BrokenModel
from laaciq.models.foreign.bits import WORD, packed_words, unpack_words
from laaciq.models.foreign.grids import affine_weights, groups_in_order
from laaciq.models.foreign.parts import Parts, setting

# Where the outputs 0 to 7 lie in a word of eight 4-bit codes: even ones first, for the kernel's sake.
_PLACES = [0, 4, 1, 5, 2, 6, 3, 7]


class Awq:
    """W[o, i] = s[g, o]·(q[i, o] − z[g, o]), where g is input i's group of neighbours."""

    quantized_parts: tuple[str, ...] = ("qweight", "qzeros", "scales")
    shared_parts: tuple[str, ...] = ()
    claims_layers = True
    notes: tuple[str, ...] = ()

    def __init__(self, settings: Mapping[str, Any]) -> None:
        named = settings.get("version") or settings.get("checkpoint_format") or settings.get("format") or "gemm"
        if str(named).lower() != "gemm":
            raise BrokenModel(f"the AWQ checkpoint is packed for {named}: save it with version gemm")
        self.bits = setting(settings, "bits", int, settings.get("w_bit") or 4)
        self.group_size = setting(settings, "group_size", int, settings.get("q_group_size") or 128)
        if self.bits not in range(2, 9):
            raise BrokenModel(f"the AWQ checkpoint has {self.bits} bits: 2 to 8 can be read")

    def weights(self, parts: Parts) -> torch.Tensor:
        """(outputs, inputs) in float32."""
        qweight = parts.integers("qweight", (None, None), torch.int32)
        inputs, outputs = len(qweight), qweight.shape[1] * WORD // self.bits
        groups = -(-inputs // self.group_size) if self.group_size > 0 else 1
        scales = parts.numbers("scales", (groups, outputs))
        qzeros = parts.integers("qzeros", (groups, packed_words(outputs, self.bits)), torch.int32)
        codes = in_order(unpack_words(qweight, self.bits, outputs), self.bits)
        zeros = in_order(unpack_words(qzeros, self.bits, outputs), self.bits).to(torch.float32)
        return affine_weights(codes.t(), scales.t(), zeros.t(), groups_in_order(inputs, self.group_size))


def in_order(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Outputs in the order of the model; only words of 4-bit codes are interleaved."""
    return codes.unflatten(1, (-1, len(_PLACES)))[:, :, _PLACES].flatten(1) if bits == 4 else codes
