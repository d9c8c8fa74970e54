"""Mutations of safetensors files: of their tensors, and of the headers that describe them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

import torch
from safetensors.torch import load_file, save_file

from tests.fuzz.mutations import Mutation, remove, replace


def _edited(path: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(path)
    change(tensors)
    remove(path)
    save_file(tensors, path, metadata={"format": "pt"})


def _floating(tensors: dict[str, torch.Tensor], random: Random) -> str:
    return random.choice([name for name, tensor in tensors.items() if tensor.is_floating_point()])


def no_numbers_in_tensor(path: Path, random: Random) -> Mutation:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        values = tensors[_floating(tensors, random)].view(-1)
        values[random.randrange(len(values))] = random.choice((torch.nan, torch.inf, -torch.inf))

    _edited(path, change)
    return Mutation("NaN or infinity in a tensor", wrong=True)


def no_tensor(path: Path, random: Random) -> Mutation:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensor = tensors.pop(random.choice(list(tensors)))
        if random.random() < 0.5:
            tensors["renamed.weight"] = tensor

    _edited(path, change)
    return Mutation("a tensor less", wrong=True)


def other_shape(path: Path, random: Random) -> Mutation:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        name = random.choice([name for name, tensor in tensors.items() if tensor.ndim and len(tensor) > 1])
        tensors[name] = tensors[name][: random.randrange(1, len(tensors[name]))].clone()

    _edited(path, change)
    return Mutation("a tensor of another shape", wrong=True)


def integers(path: Path, random: Random) -> Mutation:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        name = random.choice([name for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.ndim])
        tensors[name] = tensors[name].mul(100).to(random.choice((torch.int64, torch.int8, torch.int32)))

    _edited(path, change)
    return Mutation("floats as integers", wrong=True)


def other_values_in_tensor(path: Path, random: Random) -> Mutation:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors[_floating(tensors, random)].fill_(random.choice((0.0, 1.0, -1e4, 6e-8)))

    _edited(path, change)
    return Mutation("a constant tensor")


def other_header(path: Path, random: Random) -> Mutation:
    """The JSON at the beginning of a safetensors file says what is not so."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    name = random.choice([name for name in header if name != "__metadata__"])
    entry, kind = header[name], random.choice(("shape", "offsets", "dtype", "length", "top"))
    if kind == "shape":
        entry["shape"] = random.choice(([2**40, 2**40], [-1], [0.5], "x", None, [*entry["shape"], 3]))
    elif kind == "offsets":
        entry["data_offsets"] = random.choice(([0, 2**62], [10, 0], [0], "x", [-1, 5]))
    elif kind == "dtype":
        entry["dtype"] = random.choice(("X9", 3, None, ""))
    text = json.dumps([header] if kind == "top" else header).encode()
    stated = random.choice((2**62, 0, 3, len(text) + 2**20)) if kind == "length" else len(text)
    replace(path, struct.pack("<Q", stated) + text + content[8 + length :])
    return Mutation(f"another {kind} in its header", wrong=True)
