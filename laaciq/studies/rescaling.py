"""do(κ): rescalings that change a block's kurtosis and not the model's function.

A norm's gain (and bias) at channel j is divided by s_j, and column j of all linear layers that read that norm is multiplied by s_j. Outputs
stay the same, and the weights have other outliers. The scales are s_j = (r_j / r̄)^(p − 1), where r_j is the root mean square of the columns
and r̄ its geometric mean: p = 1 changes nothing, p = 0 makes all columns alike, and a large p makes outlier columns of those that are large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq
from torch import nn

from laaciq.errors import BadOption
from laaciq.models import LanguageModel, LinearLayer
from laaciq.studies.blockwise_weights import BlockwiseWeights
from laaciq.trials.quantized_copy import CandidateWeights, QuantizedCopy

# Logits of the rescaled model, before it is quantized, may differ from the original's by this share of the largest logit; in 16 bits by so many
# units of rounding.
FUNCTION_TOLERANCE, _ROUNDING_UNITS = 1e-4, 4
# Largest scale of a column, and the inverse of the smallest: gains stay within the range of 16-bit floats.
MOST_SCALE = 1024.0
_MOST_POWER = 64.0
_PROBE = "The first rain fell on 12 March."
_MOMENTS = np.arange(1, 5)


@dataclass(frozen=True)
class ReadNorm:
    """A norm and the linear layers that read it. Its gain is `offset` plus its weight: 1 in models such as Gemma, else 0."""

    name: str
    norm: nn.Module
    linears: list[LinearLayer]
    offset: float

    @cached_property
    def log_sizes(self) -> np.ndarray:
        """log(r_j / r̄) by channel. Columns of zeros count as r̄."""
        squares = sum(linear.matrix.double().square().sum(0).cpu() for linear in self.linears).numpy()  # type: ignore[union-attr]
        sizes = np.log(np.where(squares > 0, squares, np.exp(np.log(squares[squares > 0]).mean()))) / 2
        return sizes - sizes.mean()

    def scales(self, power: float) -> np.ndarray:
        """s_j."""
        return np.exp(np.clip((power - 1) * self.log_sizes, -np.log(MOST_SCALE), np.log(MOST_SCALE)))

    @cached_property
    def column_sums(self) -> np.ndarray:
        """Σ_i w_ij^k for k = 1 to 4, (4, channels)."""
        return np.sum([_column_sums(linear.matrix) for linear in self.linears], axis=0)


class BlockRescaling:
    """One block: its κ at every power p, and the power that gives it a κ."""

    def __init__(self, block: int, linears: list[LinearLayer], norms: list[ReadNorm]) -> None:
        self.block, self.norms = block, norms
        reading = {linear.name for norm in norms for linear in norm.linears}
        self._count = sum(linear.matrix.numel() for linear in linears)
        others = [_column_sums(linear.matrix).sum(1) for linear in linears if linear.name not in reading]
        self._others = np.sum(others, axis=0) if others else np.zeros(4)

    @property
    def names(self) -> list[str]:
        """The parameters that change."""
        return [
            name
            for read in self.norms
            for name in (
                *(f"{read.name}.{part}" for part, _ in read.norm.named_parameters(recurse=False)),
                *(linear.name for linear in read.linears),
            )
        ]

    def kurtosis(self, power: float) -> float:
        """κ of all linear weights of the block."""
        sums = self._others.copy()
        for norm in self.norms:
            sums += (norm.column_sums * norm.scales(power) ** _MOMENTS[:, None]).sum(1)
        mean, second, third, fourth = sums / self._count
        variance = second - mean**2
        return float((fourth - 4 * mean * third + 6 * mean**2 * second - 3 * mean**4) / variance**2 - 3)

    @cached_property
    def reach(self) -> tuple[float, float]:
        """The powers of the smallest and of the largest κ."""
        powers = np.concatenate([np.linspace(0, 1, 11), np.geomspace(1.1, _MOST_POWER, 60)])
        values = [self.kurtosis(power) for power in powers]
        lowest = int(np.argmin(values[:11]))
        highest = lowest + int(np.argmax(values[lowest:]))
        return float(powers[lowest]), float(powers[highest])

    def power_for(self, kurtosis: float) -> float:
        low, high = self.reach
        ends = self.kurtosis(low), self.kurtosis(high)
        if not ends[0] <= kurtosis <= ends[1]:
            raise BadOption(
                f"block {self.block} cannot have κ = {kurtosis:g} at the same function: give a κ from {ends[0]:.2f} to {ends[1]:.1f}"
            )
        return float(brentq(lambda power: self.kurtosis(power) - kurtosis, low, high, xtol=1e-6))


class Rescalable:
    """A model whose blocks can be rescaled. `blocks` has those that read a norm directly. If it is `packed`, the device has no room for other
    weights beside the model's.
    """

    def __init__(self, model: LanguageModel, *, packed: bool = False) -> None:
        self.model, self.packed = model, packed
        norms = read_norms(model)
        anatomy = model.anatomy
        self.blocks = {
            block: BlockRescaling(block, [linear for linear in anatomy.linears if linear.block == block], of_block)
            for block in range(len(anatomy.block_names))
            if (of_block := [norm for norm in norms if norm.linears[0].block == block])
        }

    def powers(self, kurtosis: Mapping[int, float]) -> dict[int, float]:
        """The power of each block that gives it this κ."""
        return {block: self._block(block).power_for(target) for block, target in kurtosis.items()}

    def equalised(self, blocks: list[int]) -> dict[int, float]:
        """The power of each block that gives it the smallest κ."""
        return {block: self._block(block).reach[0] for block in blocks}

    def _block(self, block: int) -> BlockRescaling:
        if not 0 <= block < len(self.model.anatomy.block_names):
            raise BadOption(
                f"{self.model.folder.name} has no block {block}: give 0 to {len(self.model.anatomy.block_names) - 1}"
            )
        if block not in self.blocks:
            raise BadOption(
                f"block {block} has no norm that linear layers read directly: its κ cannot be changed at the same function"
            )
        return self.blocks[block]

    def parameters(self, powers: Mapping[int, float]) -> BlockwiseWeights:
        """The parameters that change, by name, with their new values."""
        blocks = {name: block for block in powers for name in self._block(block).names}
        return BlockwiseWeights(blocks, lambda block: self._rescaled_block(block, powers[block]))

    @torch.no_grad()
    def _rescaled_block(self, block: int, power: float) -> dict[str, torch.Tensor]:
        changed = {}
        with self.model.present(block):
            for read in self._block(block).norms:
                scales = torch.from_numpy(read.scales(power)).to(self.model.device)
                for name, parameter in read.norm.named_parameters(recurse=False):
                    offset = read.offset if name == "weight" else 0.0
                    value = (parameter.double() + offset) / scales - offset
                    changed[f"{read.name}.{name}"] = value.to(parameter.dtype)
                for linear in read.linears:
                    matrix = (linear.matrix.double() * scales).to(linear.matrix.dtype)
                    changed[linear.name] = (matrix.t() if linear.transposed else matrix).contiguous()
        return changed

    def drift(self, powers: Mapping[int, float]) -> float:
        """Largest difference of the rescaled model's logits, as a share of the largest logit. Raises an error if it is more than rounding."""
        before = _logits(self.model)
        with self._rescaled(powers) as rescaled:
            after = _logits(rescaled)
        drift = float((after - before).abs().max() / before.abs().max())
        dtype = self.model.dtype
        if drift > max(FUNCTION_TOLERANCE, _ROUNDING_UNITS * torch.finfo(dtype).eps):
            reason = (
                "what its norms write is also read by other parts than linear layers, so that κ cannot be changed alone"
            )
            if dtype.itemsize < 4:
                kind = str(dtype).removeprefix("torch.")
                reason = f"rescaled gains and weights may be too coarse in {kind}; try --dtype float32"
            raise BadOption(
                f"{self.model.folder.name} computes something else after this rescaling (logits differ by {100 * drift:.1f} %): {reason}"
            )
        return drift

    @contextmanager
    def _rescaled(self, powers: Mapping[int, float]) -> Iterator[LanguageModel]:
        """The model itself, changed for as long as the context lasts; if it is packed, a copy."""
        changed = self.parameters(powers)
        if self.packed:
            copy = QuantizedCopy(self.model, packed=True)
            yield copy.hold_weights("rescaled", lambda: CandidateWeights((), changed, exact=True))
        else:
            with _replaced(self.model.module, changed):
                yield self.model


@torch.no_grad()
def plant_outliers(model: LanguageModel, blocks: list[int], *, kurtosis: float) -> None:
    """Give the named blocks outlier columns up to this κ, in place. Raises an error, and changes nothing, if the function would change."""
    rescalable = Rescalable(model)
    powers = rescalable.powers(dict.fromkeys(blocks, kurtosis))
    rescalable.drift(powers)
    parameters = dict(model.module.named_parameters())
    for name, value in rescalable.parameters(powers).items():
        parameters[name].copy_(value)


def read_norms(model: LanguageModel) -> list[ReadNorm]:
    """Norms whose output tensor linear layers of one block read, as one forward pass shows."""
    written: dict[int, tuple[str, torch.Tensor]] = {}
    readers: dict[str, list[LinearLayer]] = {}

    def note_output(name: str) -> Callable[..., None]:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor):
                written[id(output)] = (name, output)

        return hook

    def note_input(linear: LinearLayer) -> Callable[..., None]:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            if id(inputs[0]) in written:
                readers.setdefault(written[id(inputs[0])][0], []).append(linear)

        return hook

    norms = {
        name: module
        for name, module in model.module.named_modules()
        if "norm" in type(module).__name__.lower() and next(module.parameters(recurse=False), None) is not None
    }
    handles = [module.register_forward_hook(note_output(name)) for name, module in norms.items()]
    handles += [linear.module.register_forward_hook(note_input(linear)) for linear in model.anatomy.linears]
    try:
        _logits(model)
    finally:
        for handle in handles:
            handle.remove()
    return [
        ReadNorm(name, norms[name], linears, _offset(norms[name]))
        for name, linears in readers.items()
        if len({linear.block for linear in linears}) == 1
    ]


@torch.no_grad()
def _offset(norm: nn.Module) -> float:
    """0 if the output is proportional to the weight (and bias), 1 if it is to one plus the weight."""
    (first, *_) = parameters = dict(norm.named_parameters(recurse=False))
    weight = parameters[first]
    sample = torch.linspace(-1, 2, 2 * len(weight), dtype=weight.dtype, device=weight.device).reshape(2, -1)
    doubled = {name: 2 * parameter for name, parameter in parameters.items()}
    with _replaced(norm, doubled):
        twice = norm(sample)
    return 0.0 if torch.allclose(twice, 2 * norm(sample), rtol=1e-2, atol=1e-6) else 1.0


@contextmanager
def _replaced(module: nn.Module, values: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Context manager: some parameters of a module have other values."""
    named = dict(module.named_parameters())
    kept = {name: named[name].data for name in values}
    try:
        for name, value in values.items():
            named[name].data = value
        yield
    finally:
        for name, value in kept.items():
            named[name].data = value


def _column_sums(matrix: torch.Tensor) -> np.ndarray:
    wide = matrix.double()
    return np.stack([(wide ** int(k)).sum(0).cpu().numpy() for k in _MOMENTS])


@torch.no_grad()
def _logits(model: LanguageModel) -> torch.Tensor:
    ids = model.tokenizer(_PROBE, return_tensors="pt")["input_ids"].to(model.device)
    arguments = {"input_ids": ids}
    if model.kind == "encoder-decoder":
        arguments["decoder_input_ids"] = ids
    return model.module(**arguments).logits.float()
