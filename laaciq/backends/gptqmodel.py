"""GPTQ of GPTQModel with its own defaults: groups of 128 inputs, symmetric, damping 0.05; the output head is left alone.

Its column order is "group aware": groups are taken by activation, inputs stay within their groups. For a model of any type it stores float16
scales, a zero point per group with the bits of a code, packed like the codes, and the group of each input in 32 bits. A text is a sequence, cut
at 2,048 tokens; the library drops those shorter than 10 tokens.

Four workarounds. On two cores its pool has one worker but its loader needs two, and it hangs: two are requested. An error in a worker ends the
process: here it is raised. At 3, 5, 6 and 7 bits it cannot pack a layer whose inputs or outputs are not multiples of 32: such layers are
skipped. Its default format stores zero points minus 1, and so does the model in memory after `quantize`, which then computes nonsense until it
is saved and loaded again: the format gptq_v2 stores them unchanged in as many bits.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
import unittest.mock
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from laaciq.backends.contract import (
    Backend,
    BackendResult,
    matrices_besides,
    stored_bits,
    text_read,
    token_sequences,
)

GROUP_SIZE = 128


def quantize(
    model: torch.nn.Module, tokenizer: Any, texts: list[str], *, bits: int, device: str = "cpu"
) -> BackendResult:
    with contained(), tempfile.TemporaryDirectory() as folder:
        return quantize_copy(Path(folder), model, tokenizer, texts, bits, device)[0]


def quantize_copy(
    folder: Path, model: Any, tokenizer: Any, texts: list[str], bits: int, device: str
) -> tuple[BackendResult, Any]:
    """The result, and the library's quantized model; `folder` is scratch space. Call it within `contained`."""
    from gptqmodel import GPTQModel, QuantizeConfig
    from gptqmodel.nn_modules.qlinear import BaseQuantLinear
    from transformers.pytorch_utils import Conv1D

    # It loads models from folders only.
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
    sequences = token_sequences(model, tokenizer, texts)
    given = [{"input_ids": row[0].tolist(), "attention_mask": [1] * row.numel()} for row in sequences]
    library_model.quantize(given, tokenizer=tokenizer)

    weights: dict[str, torch.Tensor] = {}
    stored: dict[str, float] = {}
    for name, layer in library_model.model.named_modules():
        if not isinstance(layer, BaseQuantLinear):
            continue
        # Called on the class, because the layer's attribute may be compiled. Inputs are rows, as in Conv1D.
        dequantized = type(layer).dequantize_weight(layer).detach().cpu()
        inputs_are_rows = isinstance(model.get_submodule(name), Conv1D)
        weights[f"{name}.weight"] = dequantized if inputs_are_rows else dequantized.T.contiguous()
        stored[f"{name}.weight"] = stored_bits(layer.qweight, layer.scales, layer.qzeros, layer.g_idx)
    result = BackendResult(
        settings=f"groups of {GROUP_SIZE}, symmetric, activation order of groups, damping 0.05, {text_read(sequences)}",
        weights=weights,
        bits=stored,
        left_alone=matrices_besides(model, weights),
    )
    return result, library_model


def _unpackable(model: torch.nn.Module, bits: int) -> list[str]:
    """Layers that the library cannot pack."""
    from transformers.pytorch_utils import Conv1D

    if bits in (2, 4, 8):
        return []
    layers = ((name, m) for name, m in model.named_modules() if isinstance(m, (torch.nn.Linear, Conv1D)))
    return [name for name, layer in layers if any(size % 32 for size in layer.weight.shape)]


@contextlib.contextmanager
def contained() -> Iterator[None]:
    """No output, no folder of logs in the current directory, two workers whose errors are raised, and the environment restored."""
    before = dict(os.environ)
    os.environ.setdefault("GPTQMODEL_CPU_WORKERS", str(max(2, (os.cpu_count() or 1) // 2)))
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            from gptqmodel.looper.loop_processor import LoopProcessor
            from gptqmodel.utils.threadx import _DeviceWorker

            with (
                # It is called after the error has reached the future that is waited for.
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
