"""Weights that stay in 16 bits inside a quantized matrix: values and columns, row after row, and the number in each row."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class KeptWeights:
    """`counts` by row as int32, `columns` as uint16, `values` in 16 bits; row after row, as in a CSR matrix."""

    counts: torch.Tensor
    columns: torch.Tensor
    values: torch.Tensor

    @classmethod
    def of(cls, matrix: torch.Tensor, saliency: torch.Tensor, count: int) -> KeptWeights:
        """The `count` weights with the largest saliency, which has the matrix's shape."""
        chosen = torch.zeros(matrix.numel(), dtype=torch.bool, device=matrix.device)
        chosen[saliency.reshape(-1).topk(count, sorted=False).indices] = True
        chosen = chosen.reshape(matrix.shape)
        columns = chosen.nonzero()[:, 1]
        return cls(chosen.sum(1, dtype=torch.int32), columns.to(torch.uint16), to_16bit(matrix[chosen]))

    def rows(self, chosen: torch.Tensor) -> KeptWeights:
        """The kept weights of some rows, which may repeat."""
        counts = self.counts[chosen]
        starts = (self.counts.cumsum(0) - self.counts)[chosen]
        before = counts.cumsum(0) - counts
        places = torch.arange(int(counts.sum()), device=counts.device)
        places = places + torch.repeat_interleave(starts - before, counts.long())
        # As signed numbers, because torch does not index unsigned 16-bit numbers.
        columns = self.columns.view(torch.int16)[places].view(torch.uint16)
        return KeptWeights(counts, columns, self.values[places])

    def put_into(self, matrix: torch.Tensor, value: float | None = None) -> torch.Tensor:
        """A copy of the matrix with these weights, or `value`, in their positions."""
        rows = torch.repeat_interleave(torch.arange(len(self.counts), device=matrix.device), self.counts.long())
        copy = matrix.clone()
        # 16-bit indices are stored unsigned, which torch cannot index with.
        copy[rows, self.columns.to(torch.int64)] = self.values.to(matrix.dtype) if value is None else value
        return copy


def to_16bit(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in 16 bits: bfloat16 if that loses nothing or float16 could overflow, else float16."""
    if not tensor.is_floating_point():
        return tensor
    brain = tensor.to(torch.bfloat16)
    exact = torch.equal(brain.to(tensor.dtype), tensor)
    small = tensor.abs().max() <= torch.finfo(torch.float16).max if tensor.numel() else True
    return brain if exact or not small else tensor.to(torch.float16)


def rounded_to_16bit(tensor: torch.Tensor) -> torch.Tensor:
    """The values of `to_16bit` in the tensor's own type. Nothing waits for a GPU."""
    brain, half = (tensor.to(dtype).to(tensor.dtype) for dtype in (torch.bfloat16, torch.float16))
    small = tensor.abs().max() <= torch.finfo(torch.float16).max
    return torch.where((brain == tensor).all() | ~small, brain, half)
