"""What every back end gives: the weights that it makes of a causal language model, dequantized, and the bits that it stores for them.

A back end is a file with `quantize(model, tokenizer, texts, *, bits, device, …) -> BackendResult`, which leaves `model` as it is, and imports
its library where it is used; its `BACKENDS` say what the library offers. Give it the model in 16 bits, as the library's users do: HQQ and
llmcompressor store scales in the type of the model.
"""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from laaciq.errors import BadOption, MissingExtra, install_hint
from laaciq.models import dissect


@dataclass(frozen=True)
class BackendResult:
    """`weights` are the parameters that the library changed, dequantized, by their names in the original model, on the CPU; with them the
    original computes what the library's model does. `bits` are what its native format stores for each: codes, scales, zeros, with the
    padding of its packing; what it smooths without quantizing keeps its size. `left_alone` are the matrices that it did not quantize."""

    name: str
    settings: str
    weights: dict[str, torch.Tensor]
    bits: dict[str, float]
    left_alone: list[str]

    @property
    def bits_per_weight(self) -> float:
        """Over the quantized matrices alone; NaN where there is none."""
        quantized = [n for n, weight in self.weights.items() if weight.dim() > 1 and n not in self.left_alone]
        weights = sum(self.weights[n].numel() for n in quantized)
        return sum(self.bits[n] for n in quantized) / weights if weights else math.nan

    @torch.no_grad()
    def put_into(self, model: torch.nn.Module) -> None:
        for name, weight in self.weights.items():
            model.get_parameter(name).copy_(weight)


@dataclass(frozen=True)
class Backend:
    """One way to quantize that a library offers. `name` is what the user writes, `library` what is imported, `extra` what installs it; `run`
    is its file's `quantize`, with what sets this way apart filled in."""

    name: str
    summary: str
    library: str
    extra: str
    bits: tuple[int, ...]
    reads_text: bool
    run: Callable[..., BackendResult]

    @property
    def installed(self) -> bool:
        try:
            return importlib.util.find_spec(self.library) is not None
        except ModuleNotFoundError:  # the package that a dotted name lies in
            return False

    def require(self, bits: int) -> None:
        """Is the library there, and has it these bits?"""
        if bits not in self.bits:
            raise BadOption(f"{self.name} has {' or '.join(map(str, self.bits))} bits, not {bits}")
        if not self.installed:
            raise MissingExtra(f"{self.library} is not installed: {install_hint(self.extra)}")

    def quantize(
        self, model: torch.nn.Module, tokenizer: Any, texts: list[str], *, bits: int, device: str = "cpu"
    ) -> BackendResult:
        """Warns of linear layers in the blocks that the library left as they were, which it may have done without a word."""
        self.require(bits)
        found = self.run(model, tokenizer, texts, bits=bits, device=device)
        linears = dissect(model).linears
        if left := [linear.name for linear in linears if linear.name in found.left_alone]:
            warnings.warn(
                f"{self.name} left {len(left)} of {len(linears)} linear layers alone: {left[0]} …", stacklevel=2
            )
        return found


def matrices_besides(model: torch.nn.Module, quantized: Iterable[str]) -> list[str]:
    """Names of the matrices of `model` that are not in `quantized`; tied ones are named once."""
    names = set(quantized)
    return [name for name, parameter in model.named_parameters() if parameter.dim() > 1 and name not in names]


def stored_bits(*tensors: torch.Tensor) -> float:
    return float(sum(8 * tensor.element_size() * tensor.numel() for tensor in tensors))


@torch.no_grad()
def logit_difference(model: torch.nn.Module, library_model: torch.nn.Module, tokenizer: Any, text: str) -> float:
    """max |Δ logit| / max |logit| of `library_model` on one text."""
    tokens = tokenizer(text, return_tensors="pt")["input_ids"]
    ours, theirs = (
        m.eval()(input_ids=tokens.to(next(m.parameters()).device)).logits.float().cpu() for m in (model, library_model)
    )
    return float((ours - theirs).abs().max() / theirs.abs().max())
