"""An embedding table stored as codes: only the rows of the tokens in the batch are dequantized."""

from __future__ import annotations

import copy

import torch
from torch import nn

from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.stored import StoredMatrix


class QuantizedEmbedding(StoredMatrix):
    """Replaces an `nn.Embedding`, or a subclass that also scales the rows, for example. `table` is the original module, emptied."""

    read_by_row = True

    def __init__(
        self,
        plan: TensorPlan,
        table: nn.Embedding,
        *,
        brain_floats: frozenset[str] = frozenset(),
        owner: StoredMatrix | None = None,
    ) -> None:
        super().__init__(plan, brain_floats=brain_floats, owner=owner)
        self.num_embeddings, self.embedding_dim = plan.shape
        self.padding_idx = table.padding_idx
        empty = table.weight.new_empty(0, plan.shape[1]).detach()
        del table.weight
        # Only holds the type that the model computes in, and changes with it.
        table.register_buffer("weight", empty, persistent=False)
        # Only gradients use it, and the copies below have other rows.
        table.padding_idx = None
        self.table = table

    @property
    def weight(self) -> torch.Tensor:
        """The whole table, dequantized each time: for the rare code that does more than look rows up."""
        return self.stored().dequantize(self.plan).to(self.table.weight.dtype)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        tokens = ids.reshape(-1).long()
        looked_up = self.stored_rows(tokens).dequantize(self.plan).to(self.table.weight.dtype)
        numbers = torch.arange(len(tokens), device=ids.device).reshape(ids.shape)
        # Run the original class with just these rows as its table.
        if torch.compiler.is_compiling():
            return torch.func.functional_call(self.table, {"weight": looked_up}, (numbers,))
        # On a copy, because other threads may look up at the same time.
        table = copy.copy(self.table)
        table._buffers = table._buffers | {"weight": looked_up}
        return table.forward(numbers)
