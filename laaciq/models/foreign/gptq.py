"""GPTQ checkpoints, as GPTQModel and AutoGPTQ write them: inputs packed along the columns, groups by `g_idx` where activations order them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from laaciq.errors import BrokenModel
from laaciq.models.foreign.bits import WORD, packed_words, unpack_words
from laaciq.models.foreign.grids import affine_weights, groups_in_order
from laaciq.models.foreign.parts import Parts, matches, setting

_BITS = (2, 3, 4, 8)


class Gptq:
    """W[o, i] = s[g, o]·(q[i, o] − z[g, o]), where g is input i's group.

    The first version of the format stores z − 1, the second (`gptq_v2`) z. The table `dynamic` gives single layers other bits and group sizes
    by the first pattern that matches. Layers that are not quantized have a plain weight and are not read here.
    """

    quantized_parts: tuple[str, ...] = ("qweight", "qzeros", "scales", "g_idx")
    shared_parts: tuple[str, ...] = ()
    claims_layers = True
    notes: tuple[str, ...] = ()

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.version = setting(settings, "checkpoint_format", str, settings.get("format") or "gptq").lower()
        if self.version not in ("gptq", "gptq_v2"):
            raise BrokenModel(
                f"the checkpoint is packed for {self.version}: save it with checkpoint_format gptq or gptq_v2"
            )
        self.dynamic: dict[str, Any] = setting(settings, "dynamic", dict, {})

    def weights(self, parts: Parts) -> torch.Tensor:
        """(outputs, inputs) in float32."""
        settings = self._settings_of(parts.layer)
        bits, group_size = setting(settings, "bits", int), setting(settings, "group_size", int, -1)
        if bits not in _BITS:
            raise BrokenModel(f"{parts.layer} has {bits} bits: of GPTQ, {', '.join(map(str, _BITS))} bits can be read")
        qweight = parts.integers("qweight", (None, None), torch.int32)
        inputs, outputs = len(qweight) * WORD // bits, qweight.shape[1]
        groups = -(-inputs // group_size) if group_size > 0 else 1
        scales = parts.numbers("scales", (groups, outputs))
        qzeros = parts.integers("qzeros", (groups, packed_words(outputs, bits)), torch.int32)
        ordered = "g_idx" in parts or bool(settings.get("desc_act"))
        group_of = parts.places("g_idx", inputs, groups) if ordered else groups_in_order(inputs, group_size)
        zeros = zero_points(qzeros, bits, outputs, stored_less_one=self.version == "gptq")
        codes = unpack_words(qweight.t(), bits, inputs)
        return affine_weights(codes, scales.t(), zeros.t().to(torch.float32), group_of)

    def _settings_of(self, layer: str) -> Mapping[str, Any]:
        for pattern, override in self.dynamic.items():
            if not pattern.startswith("-:") and matches(pattern.removeprefix("+:"), layer):
                return {**self.settings, **override}
        return self.settings


def zero_points(qzeros: torch.Tensor, bits: int, outputs: int, *, stored_less_one: bool) -> torch.Tensor:
    """Zero points (groups, outputs). Where 1 was subtracted from each before storing, it comes back."""
    if not stored_less_one:
        return unpack_words(qzeros, bits, outputs)
    if WORD % bits == 0:
        # The 1s were subtracted from whole words, and a zero point of 0 borrowed from its neighbour: so they must be added to whole words.
        ones = sum(1 << at for at in range(0, WORD, bits))
        words = (qzeros.to(torch.int64) + ones) & (2**WORD - 1)
        return unpack_words(torch.where(words >= 2**31, words - 2**32, words).to(torch.int32), bits, outputs)
    return (unpack_words(qzeros, bits, outputs) + 1) & (2**bits - 1)
