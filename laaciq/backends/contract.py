"""The interface of every back end: it quantizes a causal language model and returns dequantized weights and their stored bits.

A back end is a file with `quantize(model, tokenizer, texts, *, bits, device, …) -> BackendResult`. It leaves `model` unchanged and imports its
library inside functions. Its `BACKENDS` list what the library offers. Pass the model in 16 bits, as users of the library do: HQQ and
llmcompressor store scales in the model's type.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from laaciq.errors import BadOption, MissingExtra, install_hint
from laaciq.models import dissect

# As in the examples of llmcompressor.
MAX_TOKENS = 2048


@dataclass(frozen=True)
class BackendResult:
    """What a library made of a model.

    `weights` holds the parameters that the library changed, dequantized, on the CPU, under their names in the original model. The original
    with these weights computes what the library's model computes. `bits` is the size of each in the library's own format: codes, scales and
    zero points, with the padding of its packing; a parameter that was rescaled without being quantized counts at its full size. `left_alone`
    names the matrices that were not quantized.
    """

    settings: str
    weights: dict[str, torch.Tensor]
    bits: dict[str, float]
    left_alone: list[str]

    @torch.no_grad()
    def put_into(self, model: torch.nn.Module) -> None:
        for name, weight in self.weights.items():
            model.get_parameter(name).copy_(weight)


@dataclass(frozen=True)
class Backend:
    """One method of a library. `name` is what the user types, `library` the module to import, `extra` what installs it; `run` is `quantize`
    of its file, with the options of this method filled in."""

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
        except ModuleNotFoundError:  # the parent package of a dotted name
            return False

    def require(self, bits: int) -> None:
        """Raise unless the library is installed and supports `bits`."""
        if bits not in self.bits:
            raise BadOption(f"{self.name} supports {' or '.join(map(str, self.bits))} bits, not {bits}")
        if not self.installed:
            raise MissingExtra(f"{self.library} is not installed: {install_hint(self.extra)}")

    def quantize(
        self, model: torch.nn.Module, tokenizer: Any, texts: list[str], *, bits: int, device: str = "cpu"
    ) -> BackendResult:
        """Warn if the library left linear layers of the blocks unquantized, since libraries may do so silently."""
        self.require(bits)
        result = self.run(model, tokenizer, texts, bits=bits, device=device)
        linears = dissect(model).linears
        if left := [linear.name for linear in linears if linear.name in result.left_alone]:
            warnings.warn(
                f"{self.name} left {len(left)} of {len(linears)} linear layers unquantized: {left[0]} …", stacklevel=2
            )
        return result


def matrices_besides(model: torch.nn.Module, quantized: Iterable[str]) -> list[str]:
    """Names of the matrices of `model` that are not in `quantized`; tied ones are named once."""
    names = set(quantized)
    return [name for name, parameter in model.named_parameters() if parameter.dim() > 1 and name not in names]


def stored_bits(*tensors: torch.Tensor) -> float:
    return float(sum(8 * tensor.element_size() * tensor.numel() for tensor in tensors))


def token_sequences(model: Any, tokenizer: Any, texts: Iterable[str]) -> list[torch.Tensor]:
    """One sequence of shape (1, tokens) per text, cut at `MAX_TOKENS` or at the number of positions of the model."""
    longest = min(MAX_TOKENS, getattr(model.config, "max_position_embeddings", None) or MAX_TOKENS)
    encoded = (tokenizer(text, max_length=longest, truncation=True, return_tensors="pt") for text in texts)
    return [sequence["input_ids"] for sequence in encoded]


def text_read(sequences: list[torch.Tensor]) -> str:
    """How much text was read, for `settings`."""
    tokens = sum(sequence.numel() for sequence in sequences)
    return f"{len(sequences)} sequences of {tokens} tokens in all" if sequences else "no text read"
