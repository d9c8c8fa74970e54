"""GPTQ of GPTQModel with its own defaults: groups of 128 inputs, symmetric, damping 0.05, output head left alone.

Its order of columns is "group aware": groups are taken in the order of their activations, but keep their inputs. Stored are, for a model
of any type, float16 scales, a zero point of the codes' bits a group, packed like the codes, and the group of each input in 32 bits.
A text is a sequence, cut at `max_length` tokens; what is shorter than 10 tokens the library leaves out.

Traps. On two cores its pool has one worker where its loader wants two, and it stops: it is told to have two. An error in a worker ends the
whole process: here it is raised. At 3, 5, 6 and 7 bits packing fails so where 32 does not divide inputs and outputs: such layers it is told
to skip. In its default format zero points are stored less 1, and after `quantize` the model in memory has them so too, and computes nonsense
until it is saved and loaded again: hence the format gptq_v2, which has them as they are and takes as many bits.
"""

from __future__ import annotations

import contextlib
import copy
import io
import os
import re
import tempfile
import unittest.mock
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from laaciq.backends.contract import Backend, BackendResult, logit_difference, matrices_besides, stored_bits

GROUP_SIZE = 128
# As llmcompressor's examples do.
MAX_LENGTH = 2048


def quantize(
    model: torch.nn.Module,
    tokenizer: Any,
    texts: list[str],
    *,
    bits: int,
    device: str = "cpu",
    max_length: int = MAX_LENGTH,
) -> BackendResult:
    with _tamed(), tempfile.TemporaryDirectory() as folder:
        return _quantize(model, tokenizer, texts, bits, device, max_length, Path(folder))[0]


def check(
    model: torch.nn.Module,
    tokenizer: Any,
    texts: list[str],
    *,
    bits: int,
    device: str = "cpu",
    max_length: int = MAX_LENGTH,
) -> tuple[BackendResult, float]:
    """The library's model is saved and loaded again before, and both compute in float32. Its layers would compile themselves, which takes
    minutes."""
    with _tamed(), tempfile.TemporaryDirectory() as folder, torch.compiler.set_stance("force_eager"):
        found, library_model = _quantize(model, tokenizer, texts, bits, device, max_length, Path(folder))
        from gptqmodel import BACKEND, GPTQModel

        library_model.save(f"{folder}/quantized")
        # In bfloat16, its choice on the CPU, it would round the scales too.
        loaded = GPTQModel.load(f"{folder}/quantized", backend=BACKEND.GPTQ_TORCH, device=device, dtype=torch.float16)
        ours = copy.deepcopy(model).to(device).float()
        found.put_into(ours)
        return found, logit_difference(ours, loaded.model.float(), tokenizer, texts[0])


def _quantize(
    model: Any, tokenizer: Any, texts: list[str], bits: int, device: str, max_length: int, folder: Path
) -> tuple[BackendResult, Any]:
    from gptqmodel import GPTQModel, QuantizeConfig
    from gptqmodel.nn_modules.qlinear import BaseQuantLinear
    from transformers.pytorch_utils import Conv1D

    # It loads models from folders alone.
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    config = QuantizeConfig(
        bits=bits,
        group_size=GROUP_SIZE,
        format="gptq_v2",
        device=device,
        offload_to_disk=False,
        dynamic={f"-:^{re.escape(name)}$": {} for name in _unpackable(model, bits)} or None,
    )
    library_model = GPTQModel.load(str(folder / "model"), config)
    positions = getattr(model.config, "max_position_embeddings", None) or max_length
    cut = min(max_length, positions)
    sequences = [dict(tokenizer(text, max_length=cut, truncation=True)) for text in texts]
    library_model.quantize(sequences, tokenizer=tokenizer)

    weights: dict[str, torch.Tensor] = {}
    stored: dict[str, float] = {}
    for name, layer in library_model.model.named_modules():
        if not isinstance(layer, BaseQuantLinear):
            continue
        # Not the layer's own attribute, which may be compiled. Inputs are rows, as in Conv1D.
        back = type(layer).dequantize_weight(layer).detach().cpu()
        kept_so = isinstance(model.get_submodule(name), Conv1D)
        weights[f"{name}.weight"] = back if kept_so else back.T.contiguous()
        stored[f"{name}.weight"] = stored_bits(layer.qweight, layer.scales, layer.qzeros, layer.g_idx)
    tokens = sum(len(sequence["input_ids"]) for sequence in sequences)
    found = BackendResult(
        name=f"GPTQ, {bits} bits",
        settings=(
            f"GPTQModel, groups of {GROUP_SIZE}, symmetric, activation order of groups, damping 0.05, "
            f"{len(sequences)} sequences of {tokens} tokens in all"
        ),
        weights=weights,
        bits=stored,
        left_alone=matrices_besides(model, weights),
    )
    return found, library_model


def _unpackable(model: torch.nn.Module, bits: int) -> list[str]:
    """Layers that the library fails to pack."""
    from transformers.pytorch_utils import Conv1D

    if bits in (2, 4, 8):
        return []
    layers = ((name, m) for name, m in model.named_modules() if isinstance(m, (torch.nn.Linear, Conv1D)))
    return [name for name, layer in layers if any(size % 32 for size in layer.weight.shape)]


@contextlib.contextmanager
def _tamed() -> Iterator[None]:
    """No banner and no tables, and no folder of logs where the user happens to be; two workers, whose errors are raised; an environment as
    before."""
    before = dict(os.environ)
    os.environ.setdefault("GPTQMODEL_CPU_WORKERS", str(max(2, (os.cpu_count() or 1) // 2)))
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            from gptqmodel.looper.loop_processor import LoopProcessor
            from gptqmodel.utils.threadx import _DeviceWorker

            with (
                # Called after the error has been handed to who waits for the result.
                unittest.mock.patch.object(_DeviceWorker, "_abort_process", lambda *_: None),
                unittest.mock.patch.object(LoopProcessor, "_build_log_file_path", lambda *_: Path(os.devnull)),
            ):
                yield
    finally:
        os.environ.clear()
        os.environ.update(before)


BACKENDS = (
    Backend(
        "gptqmodel",
        "GPTQModel's GPTQ: second-order rounding in groups of 128.",
        library="gptqmodel",
        extra="gptqmodel",
        bits=(2, 3, 4, 5, 6, 7, 8),
        reads_text=True,
        run=quantize,
    ),
)
