"""llama.cpp's quantizer, through `llama_model_quantize` of llama-cpp-python: what `llama-quantize` does to a GGUF file.

File types are mixtures. In Q4_K_M half of the value and down projections have 6 bits, as have the output head and an embedding tied to it;
other embeddings have 4. So embeddings are quantized, unlike by most libraries. A matrix whose inputs are not a multiple of 256 falls back to
blocks of 32 with more bits (Q4_K to Q5_0), one whose inputs are not a multiple of 32 to 16 bits. Sizes are those in the file.

The importance matrix is the mean square of each input of a layer over the tokens of the texts, as `llama-imatrix` writes it. It is measured on
the original model, each text a sequence. With one, llama.cpp chooses other types for some tensors.
"""

from __future__ import annotations

import copy
import ctypes
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from laaciq.backends.contract import Backend, BackendResult, matrices_besides, text_read, token_sequences
from laaciq.backends.gguf_model import names_in_gguf, restored_rows, write_gguf
from laaciq.errors import BadOption, BrokenModel, MissingExtra, install_hint

# The usual file type of each size, and those with plain blocks of 32.
K_QUANTS = {2: "Q2_K", 3: "Q3_K_M", 4: "Q4_K_M", 5: "Q5_K_M", 6: "Q6_K", 8: "Q8_0"}
PLAIN = {4: "Q4_0", 5: "Q5_0", 8: "Q8_0"}
_FLOATS = ("F32", "F16", "BF16")


def quantize(
    model: torch.nn.Module,
    tokenizer: Any,
    texts: list[str],
    *,
    bits: int,
    device: str = "cpu",
    types: dict[int, str] = K_QUANTS,
) -> BackendResult:
    """The importance matrix is measured on `device`. Without texts there is none."""
    with tempfile.TemporaryDirectory() as folder:
        return quantize_into(Path(folder), model, tokenizer, texts, bits=bits, device=device, types=types)


def quantize_into(
    folder: Path,
    model: torch.nn.Module,
    tokenizer: Any,
    texts: list[str],
    *,
    bits: int,
    device: str,
    types: dict[int, str],
) -> BackendResult:
    """Leaves `quantized.gguf` in `folder`."""
    if bits not in types:
        raise BadOption(
            f"llama.cpp supports {', '.join(f'{b} bits ({name})' for b, name in types.items())} here, not {bits}"
        )
    import gguf
    import llama_cpp

    if not hasattr(llama_cpp, "llama_model_imatrix_data"):
        raise MissingExtra(
            f"this version of llama-cpp-python does not accept an importance matrix: {install_hint('llamacpp')}"
        )
    names = names_in_gguf(model)
    write_gguf(model, folder / "model.gguf")
    sequences = token_sequences(model, tokenizer, texts)
    squares = mean_squares(model, sequences, device) if sequences else {}
    matrix = {names[f"{layer}.weight"]: mean for layer, mean in squares.items() if f"{layer}.weight" in names}
    file_type = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{types[bits]}")
    quantize_file(folder / "model.gguf", folder / "quantized.gguf", file_type, matrix)

    parameters = {tensor: parameter for parameter, tensor in names.items()}
    weights: dict[str, torch.Tensor] = {}
    stored: dict[str, float] = {}
    kinds: Counter[str] = Counter()
    for tensor in gguf.GGUFReader(folder / "quantized.gguf").tensors:
        if tensor.tensor_type.name in _FLOATS:
            continue
        name = parameters[tensor.name]
        dequantized = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        weights[name] = restored_rows(model, name, torch.from_numpy(dequantized.copy()))
        stored[name] = 8.0 * tensor.n_bytes
        kinds[tensor.tensor_type.name] += 1
    mixture = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return BackendResult(
        settings=f"{types[bits]}, matrices: {mixture}; {'importance from ' if sequences else ''}{text_read(sequences)}",
        weights=weights,
        bits=stored,
        left_alone=matrices_besides(model, weights),
    )


@torch.no_grad()
def mean_squares(model: torch.nn.Module, sequences: list[torch.Tensor], device: str) -> dict[str, torch.Tensor]:
    """Mean square of the inputs of every linear layer but the output head, over all tokens."""
    probed: Any = copy.deepcopy(model).to(device).eval()
    head = probed.get_output_embeddings()
    sums: dict[str, torch.Tensor] = {}

    def add(name: str, _: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        squares = inputs[0].double().square().flatten(0, -2).sum(0).cpu()
        sums[name] = sums.get(name, 0) + squares

    for name, module in probed.named_modules():
        if isinstance(module, torch.nn.Linear) and module is not head:
            module.register_forward_pre_hook(partial(add, name))
    for sequence in sequences:
        probed(input_ids=sequence.to(device))
    tokens = sum(sequence.numel() for sequence in sequences)
    return {name: (total / tokens).float() for name, total in sums.items()}


def quantize_file(source: Path, target: Path, file_type: int, importance: dict[str, torch.Tensor]) -> None:
    """`file_type` is one of llama.cpp's `LLAMA_FTYPE_…`; `importance` holds mean squares by the names of tensors in the file."""
    import llama_cpp

    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype = file_type
    options.nthread = torch.get_num_threads()
    options.allow_requantize = True
    arrays = {name: np.ascontiguousarray(mean.numpy()) for name, mean in importance.items()}
    entries = (llama_cpp.llama_model_imatrix_data * (len(arrays) + 1))()  # the last one has no name
    for entry, (name, array) in zip(entries, arrays.items(), strict=False):
        entry.name = name.encode()
        entry.data = array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        entry.size = array.size
    if arrays:
        options.imatrix = ctypes.cast(entries, ctypes.POINTER(llama_cpp.llama_model_imatrix_data))
    with captured_log() as lines:
        files = (str(path).encode() for path in (source, target))
        if llama_cpp.llama_model_quantize(*files, ctypes.byref(options)):
            raise BrokenModel(f"llama.cpp could not quantize: {''.join(lines)[-300:].strip()}")


@contextmanager
def captured_log() -> Iterator[list[str]]:
    """The log of llama.cpp, which would go to the console."""
    import llama_cpp
    from llama_cpp._logger import llama_log_callback

    lines: list[str] = []
    callback = llama_cpp.llama_log_callback(lambda level, text, _: lines.append(text.decode(errors="replace")))
    llama_cpp.llama_log_set(callback, ctypes.c_void_p(0))
    try:
        yield lines
    finally:
        llama_cpp.llama_log_set(llama_log_callback, ctypes.c_void_p(0))


BACKENDS = (
    Backend(
        "llamacpp",
        "llama.cpp's k-quants (Q4_K_M and so on) with an importance matrix from the texts.",
        library="llama_cpp",
        extra="llamacpp",
        bits=tuple(K_QUANTS),
        reads_text=True,
        run=quantize,
    ),
    Backend(
        "llamacpp-plain",
        "The same k-quants without an importance matrix.",
        library="llama_cpp",
        extra="llamacpp",
        bits=tuple(K_QUANTS),
        reads_text=False,
        run=quantize,
    ),
    Backend(
        "llamacpp-q0",
        "llama.cpp's Q4_0, Q5_0 and Q8_0: blocks of 32, no text.",
        library="llama_cpp",
        extra="llamacpp",
        bits=tuple(PLAIN),
        reads_text=False,
        run=partial(quantize, types=PLAIN),
    ),
)
