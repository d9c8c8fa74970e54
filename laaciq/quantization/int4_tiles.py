"""The layout of torch's int4 kernel for CPUs, and the way back from it, so that a layer holds its codes once.

The kernel wants codes in tiles that depend on the processor's vector instructions. Torch converts to that layout and not back. Where it puts
a code is found by converting the numbers of the codes themselves, four bits at a time.
"""

from __future__ import annotations

from functools import lru_cache

import torch

# The layout is the same in each run of as many rows, whatever the processor: its tiles have 16, 32 or 64 rows. What is left is a run of its own.
_RUN = 64
_INNER_TILES = 2


def tile(codes: torch.Tensor) -> torch.Tensor:
    """uint8 codes of 4 bits, (outputs, inputs) → the kernel's layout, (outputs, inputs / 2)."""
    return torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.to(torch.int32), _INNER_TILES)


def untile(tiles: torch.Tensor) -> torch.Tensor:
    """The inverse of `tile`."""
    inputs = 2 * tiles.shape[1]
    return torch.cat([_halves(run)[_places(len(run), inputs)] for run in tiles.split(_RUN)])


def untile_rows(tiles: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The codes of some rows, which may repeat."""
    outputs, inputs = tiles.shape[0], 2 * tiles.shape[1]
    whole = outputs // _RUN * _RUN
    run, row = rows // _RUN, rows % _RUN
    places = _places(_RUN, inputs)[row]
    if outputs > whole:
        left = _places(outputs - whole, inputs)[row.clamp_max(outputs - whole - 1)]
        places = torch.where((rows < whole)[:, None], places, left)
    places = places + (run * _RUN * inputs)[:, None]
    return (tiles.reshape(-1)[places // 2] >> (places % 2 * 4)) & 15


@torch.compiler.assume_constant_result
def _places(rows: int, inputs: int) -> torch.Tensor:
    """Found once. A compiled model holds it as a constant."""
    return _find_places(rows, inputs)


# Called with the shapes of a model's layers, which are few.
@lru_cache(maxsize=16)
@torch.inference_mode(False)
def _find_places(rows: int, inputs: int) -> torch.Tensor:
    """Where the kernel's layout has each code of as many rows: (rows, inputs), counted in half bytes."""
    numbers = torch.arange(rows * inputs).reshape(rows, inputs)
    found = torch.zeros(rows * inputs, dtype=torch.int64)
    for shift in range(0, (rows * inputs).bit_length(), 4):
        found |= _halves(tile((numbers >> shift & 15).to(torch.uint8))).to(torch.int64) << shift
    places = torch.empty_like(found)
    places[found] = torch.arange(rows * inputs)
    return places.reshape(rows, inputs)


def _halves(tiles: torch.Tensor) -> torch.Tensor:
    flat = tiles.reshape(-1)
    return torch.stack([flat & 15, flat >> 4], dim=-1).reshape(-1)
