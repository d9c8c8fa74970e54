"""A copy of the original that holds the weights of one candidate after the other: dequantized, or packed and dequantized block by block."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

import torch

from laaciq.errors import TooLittleMemory
from laaciq.models import LanguageModel
from laaciq.models.offloading import BlockTensors, OffloadedBlocks
from laaciq.quantization.grid import QuantizedMatrix
from laaciq.quantization.kept import to_16bit
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.stored_layers import StoredLayers
from laaciq.scoring.operations import ModelShape
from laaciq.trials.memory import candidate_bytes


@dataclass(frozen=True)
class CandidateWeights:
    """Quantized `layers`, with the shared scales or those of a `table`, and `others`: replaced parameters, by name. All other parameters are
    the original's in 16 bits, or `exact`.
    """

    layers: Iterable[tuple[TensorPlan, QuantizedMatrix]]
    others: Mapping[str, torch.Tensor] = field(default_factory=lambda: MappingProxyType({}))
    table: int | None = None
    exact: bool = False

    def parameter(self, name: str, original: torch.Tensor) -> torch.Tensor:
        """A parameter that is not quantized."""
        value = self.others.get(name, original)
        return value if self.exact else to_16bit(value)


class QuantizedCopy:
    """A copy that is made on first use. `holding` names its present weights, so that they are not written twice.

    If it is `packed`, quantized weights lie on the device as they are stored, in host memory if there is no room, and only those of the block
    that runs are dequantized.
    """

    def __init__(self, original: LanguageModel, *, packed: bool = False) -> None:
        self.original, self.packed = original, packed
        self._model: LanguageModel | None = None
        self._holding: Hashable = None
        self._blocks = PackedBlocks(original)

    @property
    def model(self) -> LanguageModel:
        if self._model is None:
            self._model = self._blocks.attached() if self.packed else copy_of(self.original)
        return self._model

    def release(self) -> None:
        """Give up packed weights. Dequantized ones stay: there is room for them."""
        if self.packed:
            self._holding = None
            self._blocks.clear()

    def hold(self, weights: Hashable, put_on: Callable[[LanguageModel], object]) -> LanguageModel:
        """The copy with the named `weights`. `put_on` writes them unless the copy has them already."""
        self.require_whole()
        return self._hold(weights, put_on)

    def require_whole(self) -> None:
        """Raise unless there is room for the original and a copy of it, as other libraries need them."""
        if self.packed:
            raise TooLittleMemory(
                f"memory does not suffice for two of {self.original.folder.name}, which this needs: "
                "use a machine with more memory, or a smaller model"
            )

    def hold_weights(self, name: Hashable, make: Callable[[], CandidateWeights]) -> LanguageModel:
        """The copy with the weights of that `name`. `make` is called unless the copy has them already."""
        put_on = self._blocks.put if self.packed else lambda model, weights: put_weights(self.original, model, weights)
        return self._hold(name, lambda model: put_on(model, make()))

    def _hold(self, weights: Hashable, put_on: Callable[[LanguageModel], object]) -> LanguageModel:
        if self._holding != weights:
            self._holding = None  # while it is being written, and if that fails
            put_on(self.model)
            self._holding = weights
        return self.model


class PackedBlocks:
    """Blocks that fetch dequantized weights; a `BlockSource`."""

    def __init__(self, original: LanguageModel) -> None:
        self._original = original
        self._transposed = {linear.name for linear in original.anatomy.linears if linear.transposed}
        self.clear()

    @cached_property
    def _beside(self) -> float:
        """Bytes of what is computed while the candidate is measured."""
        model = self._original
        return candidate_bytes(ModelShape.of(model.kind, model.anatomy), model.device, model.dtype.itemsize)

    def attached(self) -> LanguageModel:
        """A copy of the original whose blocks fetch their weights here."""
        model = self._original.without_block_weights()
        return replace(model, offloaded=OffloadedBlocks(dict(enumerate(model.blocks)), self, self._original.device))

    def clear(self) -> None:
        self._weights = CandidateWeights([])
        self._layers = StoredLayers({}, {}, self._original.device)

    @torch.no_grad()
    def put(self, model: LanguageModel, weights: CandidateWeights) -> None:
        # What was there before need not lie beside the new ones.
        self.clear()
        self._weights = weights
        self._layers = StoredLayers.of(weights.layers, model.device).nearer(beside=self._beside)
        prefixes = tuple(f"{name}." for name in model.anatomy.block_names)
        for name, parameter in model.module.named_parameters():
            if not name.startswith(prefixes):
                original = self._original.module.get_parameter(name)
                parameter.copy_(
                    self._dequantized(name) if name in self._layers.plans else weights.parameter(name, original)
                )

    # Fetched for inference, as everything that a candidate is used for.
    @torch.no_grad()
    def fetch(self, index: int) -> BlockTensors:
        block, device = self._original.blocks[index], self._original.device
        prefix, dtype = f"{self._original.anatomy.block_names[index]}.", self._original.dtype
        tensors = {name: buffer.to(device) for name, buffer in block.named_buffers()}
        for name, original in block.named_parameters(remove_duplicate=False):
            whole = f"{prefix}{name}"
            if whole in self._layers.plans:
                matrix = self._dequantized(whole)
                tensors[name] = (matrix.t() if whole in self._transposed else matrix).to(dtype).contiguous()
            else:
                tensors[name] = self._weights.parameter(whole, original.detach()).to(device, dtype)
        return tensors

    def _dequantized(self, name: str) -> torch.Tensor:
        return self._layers.matrix(name).dequantize(self._layers.plans[name], self._weights.table)


def copy_of(original: LanguageModel) -> LanguageModel:
    """A copy of the model that does not share weights with it."""
    return replace(original, module=copy.deepcopy(original.module))


@torch.no_grad()
def put_weights(original: LanguageModel, target: LanguageModel, weights: CandidateWeights) -> None:
    """Give `target`, a copy of `original`, the weights of a candidate, dequantized."""
    matrices = target.anatomy.matrices
    stored = dict(original.module.named_parameters())
    for name, parameter in target.module.named_parameters():
        parameter.copy_(weights.parameter(name, stored[name]))
    for tensor, quantized in weights.layers:
        matrices[tensor.name].copy_(quantized.dequantize(tensor, weights.table))


def put_layers(
    original: LanguageModel,
    target: LanguageModel,
    layers: Iterable[tuple[TensorPlan, QuantizedMatrix]],
    *,
    others: Mapping[str, torch.Tensor] = MappingProxyType({}),
) -> None:
    """As `put_weights`, for layers with the shared scales and tuned parameters, `others`."""
    put_weights(original, target, CandidateWeights(layers, others))
