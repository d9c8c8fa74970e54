"""What another library makes of the model, as a candidate."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch

from laaciq.backends.contract import Backend, BackendResult
from laaciq.models import LanguageModel
from laaciq.trials.quantized_copy import QuantizedCopy, put_layers


@dataclass(frozen=True)
class BackendCandidate:
    """`texts` gives the passages that the library is calibrated on, shuffled; it is called when the library runs."""

    name: str
    key: str
    original: LanguageModel
    backend: Backend
    bits: int
    texts: Callable[[], list[str]]

    @cached_property
    def quantized(self) -> tuple[BackendResult, float]:
        """The library's weights, and the seconds that it took."""
        self.backend.require(self.bits)
        texts = self.texts() if self.backend.reads_text else []
        # As the library's users have it.
        module = copy.deepcopy(self.original.module).to(torch.bfloat16)
        module.name_or_path = str(self.original.folder.path)
        began = time.perf_counter()
        result = self.backend.quantize(
            module, self.original.tokenizer, texts, bits=self.bits, device=self.original.device.type
        )
        return result, time.perf_counter() - began

    @contextmanager
    def applied(self, copy: QuantizedCopy, language: str) -> Iterator[LanguageModel]:
        def put_on(model: LanguageModel) -> None:
            put_layers(copy.original, model, [])
            self.quantized[0].put_into(model.module)

        yield copy.hold(self.key, put_on)
