"""AutoRound's preset W4A16 (or W3A16, …): groups of 128 inputs, symmetric, float16 scales, in its own format; the output head is left alone.

`iterations` of signed gradient descent on the outputs of each block choose rounding and clipping; 200 is its default. With 0 it searches the
best clip of every group. The library drops texts that are shorter than its sequence length and cuts longer ones, so texts are concatenated
here and cut into sequences of one length, 256 tokens at most.

It computes in float32 on most CPUs and skips layers whose inputs or outputs are not multiples of 32. Importing it patches transformers for the
rest of the process. When it saves, it copies into the folder what the model's source folder has and the model has not.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import math
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from laaciq.backends.contract import Backend, BackendResult, matrices_besides, stored_bits, text_read

GROUP_SIZE = 128
LENGTH = 256
ITERATIONS = 200


def quantize(
    model: torch.nn.Module,
    tokenizer: Any,
    texts: list[str],
    *,
    bits: int,
    device: str = "cpu",
    iterations: int = ITERATIONS,
) -> BackendResult:
    with tempfile.TemporaryDirectory() as folder:
        return quantize_into(Path(folder), model, tokenizer, texts, bits=bits, device=device, iterations=iterations)


def quantize_into(
    folder: Path, model: Any, tokenizer: Any, texts: list[str], *, bits: int, device: str, iterations: int
) -> BackendResult:
    """Leaves the library's checkpoint in `folder`."""
    positions = getattr(model.config, "max_position_embeddings", None) or LENGTH
    sequences = _sequences(tokenizer, texts, min(LENGTH, positions))
    with quiet():
        from auto_round import AutoRound

        library_model = copy.deepcopy(model)
        # So that it copies nothing when it saves.
        library_model.name_or_path = library_model.config._name_or_path = ""
        library = AutoRound(
            library_model,
            tokenizer,
            scheme=f"W{bits}A16",
            iters=iterations,
            dataset=[{"input_ids": row, "attention_mask": torch.ones_like(row)} for row in sequences],
            nsamples=len(sequences),
            seqlen=sequences[0].shape[-1],
            device_map=device,
            enable_torch_compile=False,
        )
        rounded, _ = library.quantize()
        weights = {name: p.detach().cpu().clone() for name, p in rounded.named_parameters() if p.dim() > 1}
        library.save_quantized(str(folder), format="auto_round", inplace=False)
    stored = _packed_bits(folder)
    return BackendResult(
        settings=f"groups of {GROUP_SIZE}, symmetric, {iterations} iterations, {text_read(sequences)}",
        weights={name: weights[name] for name in stored},
        bits=stored,
        left_alone=matrices_besides(model, stored),
    )


def _sequences(tokenizer: Any, texts: list[str], longest: int) -> list[torch.Tensor]:
    """All tokens of the texts in sequences of shape (1, length); fewer tokens than there are sequences are lost at the end."""
    tokens = torch.tensor(list(chain.from_iterable(tokenizer(text)["input_ids"] for text in texts)))
    count = math.ceil(len(tokens) / longest)
    length = len(tokens) // count
    return list(tokens[: count * length].view(count, 1, length))


def _packed_bits(folder: Path) -> dict[str, float]:
    """Bits that the files hold per packed layer."""
    bits: defaultdict[str, float] = defaultdict(float)
    for file in folder.rglob("*.safetensors"):
        with safe_open(file, framework="pt") as tensors:
            names = set(tensors.keys())
            for name in names:
                layer, _, part = name.rpartition(".")
                if f"{layer}.qweight" in names and part != "bias":
                    bits[f"{layer}.weight"] += stored_bits(tensors.get_tensor(name))
    return dict(bits)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and no log."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(disabled)


def _backend(name: str, summary: str, iterations: int) -> Backend:
    return Backend(
        name,
        summary,
        library="auto_round",
        extra="autoround",
        bits=(2, 3, 4, 8),
        reads_text=True,
        run=partial(quantize, iterations=iterations),
    )


BACKENDS = (
    _backend(
        "autoround", "AutoRound: rounding and clipping learned by signed gradient descent, groups of 128.", ITERATIONS
    ),
    _backend("autoround-quick", "AutoRound without iterations: a search for the best clip of every group of 128.", 0),
)
