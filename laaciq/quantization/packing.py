"""Dense packing of codes: B bits each, at every B from 1 to 8, eight codes in B bytes, low bits first."""

from __future__ import annotations

import torch

_CODES = 8


def packed_bytes(codes: int, bits: int) -> int:
    """Size of this many packed codes in bytes."""
    return -(-codes // _CODES) * bits


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """uint8 codes of any shape → a flat uint8 tensor of ⌈n·B/8⌉ bytes, rounded up to whole groups of eight codes."""
    flat = codes.reshape(-1).to(torch.int64)
    short = -len(flat) % _CODES
    lanes = torch.nn.functional.pad(flat, (0, short)).reshape(-1, _CODES)
    word = torch.zeros(len(lanes), dtype=torch.int64, device=codes.device)
    for lane in range(_CODES):
        word |= lanes[:, lane] << (bits * lane)
    return torch.stack([(word >> (8 * byte)) & 255 for byte in range(bits)], dim=1).to(torch.uint8).reshape(-1)


def unpack_at(packed: torch.Tensor, bits: int, places: torch.Tensor) -> torch.Tensor:
    """The codes at these positions, in the shape of `places`. Code i takes bits i·B to (i+1)·B, in one byte or in two neighbours."""
    first = places * bits
    byte, shift = first // 8, first % 8
    following = packed[(byte + 1).clamp_max(len(packed) - 1)].to(torch.int32) << 8
    return ((packed[byte].to(torch.int32) | following) >> shift & (2**bits - 1)).to(torch.uint8)


def unpack(packed: torch.Tensor, bits: int, shape: tuple[int, ...]) -> torch.Tensor:
    """The inverse of `pack`."""
    count = torch.Size(shape).numel()
    if 8 % bits == 0:
        # No code straddles two bytes, so bytes suffice.
        parts = [(packed >> (bits * lane)) & (2**bits - 1) for lane in range(8 // bits)]
        return torch.stack(parts, dim=-1).reshape(-1)[:count].reshape(shape)
    lanes = packed.reshape(-1, bits).to(torch.int64)
    word = torch.zeros(len(lanes), dtype=torch.int64, device=packed.device)
    for byte in range(bits):
        word |= lanes[:, byte] << (8 * byte)
    codes = torch.stack([(word >> (bits * lane)) & (2**bits - 1) for lane in range(_CODES)], dim=1)
    return codes.reshape(-1)[:count].to(torch.uint8).reshape(shape)
