"""llama.cpp's own quantizer, through `llama_model_quantize` of llama-cpp-python: what `llama-quantize` does to a GGUF file.

File types are mixtures: in Q4_K_M half of the value and down projections have 6 bits, as have the output head and an embedding that is
tied to it; other embeddings have 4. So embeddings are quantized, unlike by most libraries. A matrix whose inputs 256 does not divide falls
back to blocks of 32 with more bits (Q4_K to Q5_0), one whose inputs 32 does not divide to 16 bits. Bits are what the file stores.

The importance matrix is the mean of the squares of each layer's inputs over the tokens of the texts, as `llama-imatrix` writes it, but taken
from the original model here, each text a sequence. With one, llama.cpp chooses other types in places.
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

from laaciq.backends.contract import Backend, BackendResult, matrices_besides
from laaciq.backends.gguf_model import names_in_gguf, restored_rows, write_gguf
from laaciq.errors import BadOption, BrokenModel, MissingExtra, install_hint

# The usual one of each size, and the plain ones of blocks of 32.
K_QUANTS = {2: "Q2_K", 3: "Q3_K_M", 4: "Q4_K_M", 5: "Q5_K_M", 6: "Q6_K", 8: "Q8_0"}
PLAIN = {4: "Q4_0", 5: "Q5_0", 8: "Q8_0"}
# As llmcompressor's examples do.
MAX_LENGTH = 2048
_FLOATS = ("F32", "F16", "BF16")


def quantize(
    model: torch.nn.Module,
    tokenizer: Any,
    texts: list[str],
    *,
    bits: int,
    device: str = "cpu",
    types: dict[int, str] = K_QUANTS,
    importance: bool = True,
    max_length: int = MAX_LENGTH,
) -> BackendResult:
    """`device` is where the importance matrix is measured; without `importance` no text is read."""
    with tempfile.TemporaryDirectory() as folder:
        return _quantize(model, tokenizer, texts, bits, device, types, importance, max_length, Path(folder))


def check(
    model: torch.nn.Module,
    tokenizer: Any,
    texts: list[str],
    *,
    bits: int,
    device: str = "cpu",
    types: dict[int, str] = K_QUANTS,
    importance: bool = True,
    max_length: int = MAX_LENGTH,
) -> tuple[BackendResult, float]:
    """Against llama.cpp's logits from the weights that it dequantizes itself, in float32: from the quantized ones it also rounds the
    inputs of every layer to 8 bits."""
    import llama_cpp

    with tempfile.TemporaryDirectory() as folder:
        found = _quantize(model, tokenizer, texts, bits, device, types, importance, max_length, Path(folder))
        _run(Path(folder), "quantized", "back", llama_cpp.LLAMA_FTYPE_ALL_F32, {})
        tokens = tokenizer(texts[0])["input_ids"]
        theirs = _logits(Path(folder) / "back.gguf", tokens)
    ours = copy.deepcopy(model).float()
    found.put_into(ours)
    with torch.no_grad():
        logits = ours.eval()(input_ids=torch.tensor([tokens])).logits[0]
    return found, float((logits - theirs).abs().max() / theirs.abs().max())


def _quantize(
    model: torch.nn.Module,
    tokenizer: Any,
    texts: list[str],
    bits: int,
    device: str,
    types: dict[int, str],
    importance: bool,
    max_length: int,
    folder: Path,
) -> BackendResult:
    if bits not in types:
        raise BadOption(
            f"llama.cpp has {', '.join(f'{b} bits ({name})' for b, name in types.items())} here, not {bits}"
        )
    import gguf
    import llama_cpp

    if not hasattr(llama_cpp, "llama_model_imatrix_data"):
        raise MissingExtra(f"this llama-cpp-python takes no importance matrix: {install_hint('llamacpp')}")
    names = names_in_gguf(model)
    write_gguf(model, folder / "model.gguf")
    squares, tokens = _mean_squares(model, tokenizer, texts, device, max_length) if importance else ({}, 0)
    matrix = {names[f"{layer}.weight"]: mean for layer, mean in squares.items() if f"{layer}.weight" in names}
    _run(folder, "model", "quantized", getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{types[bits]}"), matrix)

    ours = {there: here for here, there in names.items()}
    weights: dict[str, torch.Tensor] = {}
    stored: dict[str, float] = {}
    kinds: Counter[str] = Counter()
    for tensor in gguf.GGUFReader(folder / "quantized.gguf").tensors:
        if tensor.tensor_type.name in _FLOATS:
            continue
        name = ours[tensor.name]
        back = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        weights[name] = restored_rows(model, name, torch.from_numpy(back.copy()))
        stored[name] = 8.0 * tensor.n_bytes
        kinds[tensor.tensor_type.name] += 1
    mixture = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    read = f"importance from {len(texts)} sequences of {tokens} tokens in all" if importance else "no text read"
    return BackendResult(
        name=f"llama.cpp {types[bits]}",
        settings=f"matrices: {mixture}; {read}",
        weights=weights,
        bits=stored,
        left_alone=matrices_besides(model, weights),
    )


@torch.no_grad()
def _mean_squares(
    model: torch.nn.Module, tokenizer: Any, texts: list[str], device: str, max_length: int
) -> tuple[dict[str, torch.Tensor], int]:
    """Mean of the squares of the inputs of every linear layer, and how many tokens it was taken over."""
    probed: Any = copy.deepcopy(model).to(device).eval()
    head = probed.get_output_embeddings()
    sums: dict[str, torch.Tensor] = {}

    def add(name: str, _: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        squares = inputs[0].double().square().flatten(0, -2).sum(0).cpu()
        sums[name] = sums.get(name, 0) + squares

    for name, module in probed.named_modules():
        if isinstance(module, torch.nn.Linear) and module is not head:
            module.register_forward_pre_hook(partial(add, name))
    cut = min(max_length, probed.config.max_position_embeddings)
    tokens = 0
    for text in texts:
        encoded = tokenizer(text, max_length=cut, truncation=True, return_tensors="pt")["input_ids"]
        tokens += encoded.numel()
        probed(input_ids=encoded.to(device))
    return {name: (total / tokens).float() for name, total in sums.items()}, tokens


def _run(folder: Path, source: str, target: str, file_type: int, importance: dict[str, torch.Tensor]) -> None:
    import llama_cpp

    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype = file_type
    options.nthread = torch.get_num_threads()
    options.allow_requantize = True
    arrays = {name: np.ascontiguousarray(mean.numpy()) for name, mean in importance.items()}
    entries = (llama_cpp.llama_model_imatrix_data * (len(arrays) + 1))()  # ends with one without a name
    for entry, (name, array) in zip(entries, arrays.items(), strict=False):
        entry.name = name.encode()
        entry.data = array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        entry.size = array.size
    if arrays:
        options.imatrix = ctypes.cast(entries, ctypes.POINTER(llama_cpp.llama_model_imatrix_data))
    with _log() as said:
        files = (str(folder / f"{name}.gguf").encode() for name in (source, target))
        if llama_cpp.llama_model_quantize(*files, ctypes.byref(options)):
            raise BrokenModel(f"llama.cpp could not quantize: {''.join(said)[-300:].strip()}")


@contextmanager
def _log() -> Iterator[list[str]]:
    """What llama.cpp says, which would go to the console."""
    import llama_cpp
    from llama_cpp._logger import llama_log_callback

    said: list[str] = []
    callback = llama_cpp.llama_log_callback(lambda level, text, _: said.append(text.decode(errors="replace")))
    llama_cpp.llama_log_set(callback, ctypes.c_void_p(0))
    try:
        yield said
    finally:
        llama_cpp.llama_log_set(llama_log_callback, ctypes.c_void_p(0))


def _logits(file: Path, tokens: list[int]) -> torch.Tensor:
    import llama_cpp

    with _log():
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_load_from_file(str(file).encode(), llama_cpp.llama_model_default_params())
        if not model:
            raise BrokenModel(f"llama.cpp could not load {file.name}")
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = options.n_batch = options.n_ubatch = len(tokens)
        options.n_threads = options.n_threads_batch = torch.get_num_threads()
        options.type_k = options.type_v = 0  # float32
        options.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        context = llama_cpp.llama_init_from_model(model, options)
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for position, token in enumerate(tokens):
            batch.token[position] = token
            batch.pos[position] = position
            batch.n_seq_id[position] = 1
            batch.seq_id[position][0] = 0
            batch.logits[position] = True
        try:
            if llama_cpp.llama_decode(context, batch):
                raise BrokenModel(f"llama.cpp could not run {file.name}")
            size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
            flat = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), shape=(len(tokens) * size,))
            return torch.from_numpy(flat.copy()).view(len(tokens), size)
        finally:
            llama_cpp.llama_batch_free(batch)
            llama_cpp.llama_free(context)
            llama_cpp.llama_model_free(model)


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
        run=partial(quantize, importance=False),
    ),
    Backend(
        "llamacpp-q0",
        "llama.cpp's Q4_0, Q5_0 and Q8_0: blocks of 32, no text.",
        library="llama_cpp",
        extra="llamacpp",
        bits=tuple(PLAIN),
        reads_text=False,
        run=partial(quantize, types=PLAIN, importance=False),
    ),
)
