"""The layout of torch's int4 kernel for CPUs, and the way back from it, so that a layer holds its codes once.

The kernel wants codes in tiles that depend on the processor's vector instructions. Torch converts to that layout and not back. Where it puts
a code is found by converting the numbers of the codes themselves, four bits at a time.
"""

from __future__ import annotations

from functools import lru_cache

import torch

# The layout is the same in each run of as many rows, whatever the processor: tiles have 16, 32 or 64 rows. The rows that are left are one run.
_RUN = 64
_INNER_TILES = 2


def tile(codes: torch.Tensor) -> torch.Tensor:
    """uint8 codes of 4 bits, (outputs, inputs) → the kernel's layout, (outputs, inputs / 2)."""
    return torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.to(torch.int32), _INNER_TILES)


def untile(tiles: torch.Tensor) -> torch.Tensor:
    """The inverse of `tile`."""
    inputs = 2 * tiles.shape[1]
    return torch.cat([_halves(run)[_places(len(run), inputs)] for run in tiles.split(_RUN)])


def row_places(shape: tuple[int, int]) -> torch.Tensor:
    """What `untile_rows` reads to find codes: their places in a whole run of rows, and then in the rows that are left, (rows, inputs)."""
    left = shape[0] % _RUN
    runs = [_places(rows, shape[1]) for rows in (_RUN, left) if rows]
    return torch.cat(runs).to(torch.int32)


def untile_rows(tiles: torch.Tensor, places: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The codes of some rows, which may repeat."""
    outputs, inputs = tiles.shape[0], 2 * tiles.shape[1]
    in_run, before = rows % _RUN, rows // _RUN * _RUN
    half = places[torch.where(before + _RUN > outputs, _RUN + in_run, in_run)] + before[:, None] * inputs
    return (tiles.reshape(-1)[half // 2] >> (half % 2 * 4)) & 15


# Called with the shapes of a model's layers, which are few.
@lru_cache(maxsize=16)
@torch.inference_mode(False)
def _places(rows: int, inputs: int) -> torch.Tensor:
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
