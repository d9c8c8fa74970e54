"""Time and memory that a run will take, told before it starts."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from laaciq.corpus import Texts
from laaciq.errors import BrokenModel, TooLittleMemory
from laaciq.models import ModelFolder

# Bytes of text a token, over many languages and tokenizers; the true number is known only after tokenizing.
_BYTES_PER_TOKEN = 3.0
# Attention, norms, softmax and memory traffic beside the matrix products of the weights.
_OVERHEAD = 1.8
# Weights in an integer, at 4 bits each; quantized checkpoints hold codes in these types, others hold hardly any of them.
_PACKED = {"I32": 8, "U8": 2}
# Interpreter, libraries, activations and logits.
_BASE_BYTES = 900 * 2**20


@dataclass(frozen=True)
class Cost:
    seconds: float
    memory_bytes: int

    def __str__(self) -> str:
        duration = f"{self.seconds:.0f} s" if self.seconds < 90 else f"{self.seconds / 60:.0f} min"
        return f"about {duration}, {self.memory_bytes / 2**30:.1f} GB of memory"


def estimate(folder: ModelFolder, texts: Texts, *, device: torch.device) -> Cost:
    """Two models side by side, each passing over the texts once."""
    parameters = _parameter_count(folder)
    byte_count = sum(passages.byte_count for passages in texts.by_language.values())
    operations = 2 * 2 * parameters * byte_count / _BYTES_PER_TOKEN * _OVERHEAD
    width = 4 if device.type == "cpu" else 2
    return Cost(operations / _operations_per_second(device), 2 * width * parameters + _BASE_BYTES)


def require_memory(cost: Cost, device: torch.device) -> None:
    free = _free_memory(device)
    if free is not None and cost.memory_bytes > free:
        raise TooLittleMemory(
            f"this needs about {cost.memory_bytes / 2**30:.1f} GB of memory and {free / 2**30:.1f} GB are free: "
            f"close other programs, take a smaller model, or a machine with more memory"
        )


def _parameter_count(folder: ModelFolder) -> int:
    """From the headers alone, of packed codes a guess of 4 bits a weight; for other files a guess, 4 bits in GGUF and 16 elsewhere."""
    count = 0
    for path in folder.weight_files:
        if path.suffix != ".safetensors":
            count += path.stat().st_size * 2 if path.suffix == ".gguf" else path.stat().st_size // 2
            continue
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118
                    header = file.get_slice(name)
                    count += torch.Size(header.get_shape()).numel() * _PACKED.get(header.get_dtype(), 1)
        except (SafetensorError, OSError) as error:
            raise BrokenModel(f"{path} is broken or cut short ({error}); copy it again") from None
    return count


def _operations_per_second(device: torch.device) -> float:
    """Of a matrix product of the shape that small models have, measured now."""
    left, right = torch.rand(512, 256, device=device), torch.rand(256, 1024, device=device)
    for _ in range(3):
        left @ right
    began, rounds = time.perf_counter(), 20
    for _ in range(rounds):
        product = left @ right
    product.sum().item()
    return 2 * 512 * 256 * 1024 * rounds / (time.perf_counter() - began)


def _free_memory(device: torch.device) -> int | None:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None  # not Linux: unknown
