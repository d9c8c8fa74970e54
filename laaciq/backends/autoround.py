"""AutoRound's preset W4A16 (or W3A16, …): groups of 128 inputs, symmetric, float16 scales, output head left alone, stored in its own format.

`iterations` of signed gradient descent on each block's outputs choose the rounding and the clipping, 200 as by default; with 0 it is its
search for the best clip of every group. The library leaves out texts shorter than its length of a sequence and cuts longer ones, so texts
are strung together here and cut into sequences of one length, 256 tokens at most.

It computes in float32 on most CPUs, passes over layers whose inputs or outputs 32 does not divide, and patches transformers when it is
imported, which stays. When it saves, it adds what the folder that the model came from has and the model has not.
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

from laaciq.backends.contract import Backend, BackendResult, logit_difference, matrices_besides, stored_bits

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
        return _quantize(model, tokenizer, texts, bits, device, iterations, Path(folder))


def check(
    model: torch.nn.Module,
    tokenizer: Any,
    texts: list[str],
    *,
    bits: int,
    device: str = "cpu",
    iterations: int = ITERATIONS,
) -> tuple[BackendResult, float]:
    """Against what transformers loads from the library's format."""
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as folder:
        found = _quantize(model, tokenizer, texts, bits, device, iterations, Path(folder))
        with _quietly():
            loaded = AutoModelForCausalLM.from_pretrained(folder, device_map=device, dtype=torch.float32)
    ours = copy.deepcopy(model).to(device).float()
    found.put_into(ours)
    return found, logit_difference(ours, loaded, tokenizer, texts[0])


def _quantize(
    model: Any, tokenizer: Any, texts: list[str], bits: int, device: str, iterations: int, folder: Path
) -> BackendResult:
    positions = getattr(model.config, "max_position_embeddings", None) or LENGTH
    sequences = _sequences(tokenizer, texts, min(LENGTH, positions))
    with _quietly():
        from auto_round import AutoRound

        library_model = copy.deepcopy(model)
        # So that it adds nothing when it saves.
        library_model.name_or_path = library_model.config._name_or_path = ""
        library = AutoRound(
            library_model,
            tokenizer,
            scheme=f"W{bits}A16",
            iters=iterations,
            dataset=sequences,
            nsamples=len(sequences),
            seqlen=sequences[0]["input_ids"].shape[-1],
            device_map=device,
            enable_torch_compile=False,
        )
        rounded, _ = library.quantize()
        weights = {name: p.detach().cpu().clone() for name, p in rounded.named_parameters() if p.dim() > 1}
        library.save_quantized(str(folder), format="auto_round", inplace=False)
    stored = _packed_bits(folder)
    found = {name: weights[name] for name in stored}
    tokens = sum(sequence["input_ids"].numel() for sequence in sequences)
    return BackendResult(
        name=f"AutoRound, {bits} bits",
        settings=(
            f"groups of {GROUP_SIZE}, symmetric, {iterations} iterations, {len(sequences)} sequences of {tokens} tokens in all"
        ),
        weights=found,
        bits=stored,
        left_alone=matrices_besides(model, found),
    )


def _sequences(tokenizer: Any, texts: list[str], at_most: int) -> list[dict[str, torch.Tensor]]:
    tokens = torch.tensor(list(chain.from_iterable(tokenizer(text)["input_ids"] for text in texts)))
    count = math.ceil(len(tokens) / at_most)
    length = len(tokens) // count  # almost nothing is lost at the end
    rows = tokens[: count * length].view(count, 1, length)
    return [{"input_ids": row, "attention_mask": torch.ones_like(row)} for row in rows]


def _packed_bits(folder: Path) -> dict[str, float]:
    """What the files hold for every packed layer."""
    found: defaultdict[str, float] = defaultdict(float)
    for file in folder.rglob("*.safetensors"):
        with safe_open(file, framework="pt") as tensors:
            names = set(tensors.keys())
            for name in names:
                layer, _, part = name.rpartition(".")
                if f"{layer}.qweight" in names and part != "bias":
                    found[f"{layer}.weight"] += stored_bits(tensors.get_tensor(name))
    return dict(found)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
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
        "autoround", "AutoRound: rounding and clips learnt by signed gradient descent, groups of 128.", ITERATIONS
    ),
    _backend("autoround-quick", "AutoRound without iterations: a search for the clip of every group of 128.", 0),
)
