"""Where weights lie: on the device, or offloaded to host memory or files, within bounds of memory."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from laaciq.engine.gpu_memory import bound_tensors, free_bytes
from laaciq.errors import BadOption, TooLittleMemory
from laaciq.models.computing import pick_device
from laaciq.quantization.tuning import tuned_bytes
from laaciq.scoring.likelihood import tokens_per_batch
from laaciq.scoring.operations import ModelShape

# Models that `run` holds at once: the original, and two candidates.
_MODELS = 3
# CUDA's own memory, outside torch's, and the part of it that a process has as soon as it asks what is free.
_CUDA_CONTEXT, _CUDA_BEGUN = 1100 * 2**20, 400 * 2**20
# What does not lie idle between torch's pieces.
_USABLE = 0.94
_UNITS = {"B": 1, "MB": 2**20, "GB": 2**30, "TB": 2**40}
# Share of host memory that may be pinned.
_PINNED = 0.7


@dataclass(frozen=True)
class MemoryLimits:
    """Bytes that may be used, of a GPU's memory and of host memory; None: all that is free."""

    gpu: int | None = None
    host: int | None = None


def read_limits(gpu: str | None, host: str | None, device: str) -> MemoryLimits:
    """The limits that a user gave. GPU memory is refused where models run on a CPU: it would bound nothing."""
    if gpu is not None and pick_device(device).type == "cpu":
        raise BadOption("--gpu-memory bounds the memory of a GPU, and models run on the CPU here: give --host-memory")
    return MemoryLimits(
        None if gpu is None else parse_bytes(gpu, "--gpu-memory"),
        None if host is None else parse_bytes(host, "--host-memory"),
    )


def parse_bytes(text: str, option: str) -> int:
    """`"24GB"` → bytes. As with memory that is sold, a GB is 2³⁰ bytes."""
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([MGT]i?B|B)\s*", text, re.ASCII | re.IGNORECASE)
    if parts is None or not float(parts[1]):
        raise BadOption(f"{option} {text!r} is not an amount of memory: give for example 24GB or 800MB")
    return int(float(parts[1]) * _UNITS[parts[2].upper().replace("I", "")])


def bound_allocator(device: torch.device, limits: MemoryLimits) -> Callable[[], None]:
    """Make torch refuse to take more GPU memory than the user allows. Returns a function that ends that."""
    if device.type == "cuda" and limits.gpu is not None:
        return bound_tensors(limits.gpu - _CUDA_CONTEXT)
    return lambda: None


@dataclass(frozen=True)
class Demand:
    """What a command needs memory for beside the original and the text that it measures; by default, all that any command needs. `candidates`
    are packed codes, `moments` those of layer inputs with their factors, `tuning` what is tuned. With `pair`, a second model with plain weights
    is measured.
    """

    candidates: bool = True
    moments: bool = True
    tuning: bool = True
    pair: bool = False


# Of commands that only measure: the original; candidates that read no text; the original and another model.
PROFILING = Demand(candidates=False, moments=False, tuning=False)
MEASURING = Demand(moments=False, tuning=False)
PAIR = Demand(candidates=False, moments=False, tuning=False, pair=True)


@dataclass(frozen=True)
class Placement:
    """`most_bytes` of the original's weights may be on the device, None if all are. Blocks that do not fit are offloaded: at most
    `pinned_bytes` of them to pinned host memory, the others stay in their files. If candidates are `packed`, their blocks are dequantized when
    they run; where they are also `away`, room for their codes is in host memory alone. Of a `pair`, each model is placed like this.
    """

    most_bytes: int | None = None
    packed: bool = False
    pinned_bytes: int = 0
    away: bool = False
    pair: bool = False


def place_weights(
    shape: ModelShape,
    device: torch.device,
    limits: MemoryLimits,
    number_bytes: int,
    demand: Demand = Demand(),
) -> Placement:
    """As many weights, of `number_bytes` each, on the device as there is room for beside what is in `demand`. Raises `TooLittleMemory` if one
    block at a time is too much, and `BadOption` if host memory is bounded beside a GPU on which all weights are.
    """
    models = 2 if demand.pair else 1
    bound = device_bound(device, limits)
    if bound is None:
        return Placement(pair=demand.pair)
    size, fewest = models * number_bytes * shape.parameters, models * _fewest_weights(shape, number_bytes)
    room = bound - working_bytes(shape, device, number_bytes, demand)
    if room >= size:
        _refuse_host_limit(device, limits)
        return Placement(packed=demand.candidates and room < _MODELS * size, pair=demand.pair)
    least = least_bytes(shape, device, number_bytes, demand)
    if bound < least:
        raise TooLittleMemory(_too_little(least, device, limits))
    host = 0.0 if device.type == "cpu" else _PINNED * (limits.host or free_memory(torch.device("cpu")) or 0)
    if room >= fewest:
        return Placement(int(room / models), packed=True, pinned_bytes=int(host / models), pair=demand.pair)
    codes = packed_bytes(shape)
    if host < codes:
        needed = taken_bytes(bound - room + fewest, device)
        raise TooLittleMemory(_too_little_for_codes(codes / _PINNED, needed, limits))
    return Placement(int(fewest), packed=True, pinned_bytes=int(host - codes), away=True)


def _refuse_host_limit(device: torch.device, limits: MemoryLimits) -> None:
    """Where nothing is offloaded, it would bound nothing beside a GPU."""
    if device.type == "cuda" and limits.host is not None:
        raise BadOption("--host-memory has no effect here: all weights fit on the GPU, so leave it out")


def least_bytes(shape: ModelShape, device: torch.device, number_bytes: int, demand: Demand = Demand()) -> float:
    """Memory of the work with the fewest weights on the device, and with codes in host memory."""
    models = 2 if demand.pair else 1
    return working_bytes(shape, device, number_bytes, demand, away=True) + models * _fewest_weights(shape, number_bytes)


def _fewest_weights(shape: ModelShape, number_bytes: int) -> float:
    """Three blocks, two of which come and go, and all that is outside blocks."""
    return number_bytes * (shape.parameters - shape.weights + 3 * max(shape.block_weights))


def _too_little_for_codes(host: float, gpu: float, limits: MemoryLimits) -> str:
    """The host memory that codes need, or the GPU memory that would hold them."""
    wanted, size = (math.ceil(needed / 2**30 * 10) / 10 for needed in (host, gpu))
    more = f"--host-memory {wanted:g}GB or more" if limits.host is not None else f"{wanted:g} GB of free host memory"
    return f"packed codes fit neither on the GPU nor in host memory: give {more}, or {size:g} GB of GPU memory"


def _too_little(needed: float, device: torch.device, limits: MemoryLimits) -> str:
    """`needed` bytes of weights and work, and what the user can do. The size that it names is rounded up, so that it is enough."""
    on_gpu = device.type == "cuda"
    size = math.ceil(taken_bytes(needed, device) / 2**30 * 10) / 10
    wanted = f"a GPU with {size:g} GB of free memory" if on_gpu else f"--host-memory {size:g}GB or more"
    if on_gpu and limits.gpu is not None and size * 2**30 <= (free_memory(device) or math.inf):
        wanted = f"--gpu-memory {size:g}GB or more"
    return f"this is too little memory even for one block at a time: give {wanted}, or use a smaller model"


def device_bound(device: torch.device, limits: MemoryLimits) -> float | None:
    """Bytes of tensors that may be on the device; None if there is no bound. No bound makes more memory free than there is."""
    if device.type == "cpu":
        return limits.host
    known = [size for size in (limits.gpu, free_memory(device)) if size is not None]
    return _USABLE * (min(known) - _CUDA_CONTEXT) if known else None


def taken_bytes(size: float, device: torch.device) -> float:
    """What a process takes of an accelerator that has tensors of this size there."""
    return size / _USABLE + _CUDA_CONTEXT if device.type == "cuda" else size


def measuring_bytes(shape: ModelShape, device: torch.device, number_bytes: int) -> float:
    """Memory beside weights to measure: logits of two models, outputs of all blocks for a batch, and what is inside a block."""
    tokens = tokens_per_batch(shape.vocabulary, on_cpu=device.type == "cpu")
    return _logit_bytes(shape, tokens) + _reading_bytes(shape, tokens, number_bytes)


def candidate_bytes(shape: ModelShape, device: torch.device, number_bytes: int) -> float:
    """Memory to measure a packed candidate beside the original, without its codes: two of its blocks are dequantized at a time."""
    return measuring_bytes(shape, device, number_bytes) + 2 * number_bytes * max(shape.block_weights)


def working_bytes(
    shape: ModelShape, device: torch.device, number_bytes: int, demand: Demand = Demand(), *, away: bool = False
) -> float:
    """Memory beside weights that the largest stage needs: `measuring_bytes`, with second moments of the widest layer and their factors in
    float64 instead of logits if they are larger; on a GPU also what is tuned, or a candidate, with codes unless they are `away`.
    """
    tokens = tokens_per_batch(shape.vocabulary, on_cpu=device.type == "cpu")
    moments = 44 * shape.widest**2 if demand.moments else 0
    stages = [max(_logit_bytes(shape, tokens), moments) + _reading_bytes(shape, tokens, number_bytes)]
    if device.type != "cpu":
        codes = 0.0 if away else packed_bytes(shape)
        stages += [tuned_bytes(shape) + codes] if demand.tuning else []
        stages += [candidate_bytes(shape, device, number_bytes) + codes] if demand.candidates else []
    return max(stages)


def _logit_bytes(shape: ModelShape, tokens: int) -> float:
    """Logits of two models, and room to compare them."""
    return 2.5 * 4 * tokens * shape.vocabulary


def _reading_bytes(shape: ModelShape, tokens: int, number_bytes: int) -> float:
    outputs = number_bytes * tokens * shape.blocks * shape.width
    inside = 4 * tokens * (6 * shape.width + 3 * shape.widest)
    return outputs + inside


def packed_bytes(shape: ModelShape) -> float:
    """Packed weights of a candidate at 4 bits and a little more, with their scales."""
    return 0.6 * shape.weights


def free_memory(device: torch.device) -> int | None:
    """What this process may take, on a GPU with CUDA's own memory, of which some is taken by now; None if it is unknown."""
    if device.type == "cuda":
        return min(free_bytes() + _CUDA_BEGUN, torch.cuda.get_device_properties(device).total_memory)
    try:
        fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None  # not Linux
