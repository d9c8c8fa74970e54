"""Methods by name. A method turns a matrix and its plan into codes."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

import torch

from laaciq.errors import BadOption
from laaciq.planning import TensorPlan
from laaciq.quantization.grid import QuantizedMatrix, round_to_nearest


@dataclass(frozen=True)
class Method:
    name: str
    summary: str
    quantize: Callable[[torch.Tensor, TensorPlan], QuantizedMatrix]


METHODS = {
    method.name: method
    for method in (
        Method("rtn", "Round to nearest on the min–max grid of every group; needs no text.", round_to_nearest),
    )
}


def find_method(name: str) -> Method:
    if name in METHODS:
        return METHODS[name]
    near = difflib.get_close_matches(name, METHODS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(METHODS)}"
    raise BadOption(f"unknown method {name!r}: {hint}")
