"""RTN, GPTQ and AWQ of llmcompressor, through `oneshot` with its own defaults: groups of 128 inputs, stored in its `pack-quantized` format.

RTN is the preset W4A16 (or W3A16, W8A16) without data: symmetric, rounded to nearest. GPTQ is the same preset with columns in activation order
and damping 0.01. AWQ is W4A16_ASYM (or the same at other bits): affine, with a search over 20 scales that move from the layer before into the
quantized one, so that norms and biases change too.

A text is a sequence, cut at 2,048 tokens as in the library's examples. The library refuses a matrix whose inputs are not a multiple of 128
(with fewer than 128 it fails) and says to ignore it, as is done here. It skips AWQ mappings whose shapes do not fit: value to output where
heads share keys. Norms that multiply by 1 + w come back rounded as 1 + w, also from GPTQ.
"""

from __future__ import annotations

import contextlib
import copy
import io
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Literal

import torch

from laaciq.backends.contract import (
    Backend,
    BackendResult,
    matrices_besides,
    stored_bits,
    text_read,
    token_sequences,
)
from laaciq.errors import BadOption

MethodName = Literal["RTN", "GPTQ", "AWQ"]
GROUP_SIZE = 128
# AWQ passes each of them through each block about a hundred times.
AWQ_PASSAGES = 64
_GRIDS: dict[MethodName, str] = {
    "RTN": "symmetric",
    "GPTQ": "symmetric, activation order, damping 0.01",
    "AWQ": "affine, 20 scales tried",
}


def quantize(
    model: torch.nn.Module, tokenizer: Any, texts: list[str], *, method: MethodName, bits: int, device: str = "cpu"
) -> BackendResult:
    """RTN reads no text, AWQ the first 64 texts."""
    return quantize_copy(model, tokenizer, texts, method, bits, device)[0]


def quantize_copy(
    model: torch.nn.Module, tokenizer: Any, texts: list[str], method: MethodName, bits: int, device: str
) -> tuple[BackendResult, torch.nn.Module]:
    """The result, and the copy of the model that the library quantized."""
    # llmcompressor logs to what standard output is when it is imported.
    with contextlib.redirect_stdout(sys.stderr):
        from compressed_tensors.offload import remove_dispatch
        from llmcompressor import oneshot

    accelerator = torch.accelerator.current_accelerator(check_available=True)
    used = "cpu" if accelerator is None else accelerator.type
    if used != torch.device(device).type:
        raise BadOption(f"llmcompressor always uses {used} here: pass that device, or hide it, not {device}.")
    # On the CPU: the library moves each block to the device while it works on it.
    library_model = copy.deepcopy(model).cpu()
    read = {"RTN": [], "GPTQ": texts, "AWQ": texts[:AWQ_PASSAGES]}[method]
    sequences = token_sequences(model, tokenizer, read)
    given: Any = [{"input_ids": row, "attention_mask": torch.ones_like(row)} for row in sequences]
    ignore = ["lm_head", *_indivisible(model)]
    with _config_on_disk(library_model), _quietly(), _pinning_where_possible():
        oneshot(
            model=library_model,
            processor=tokenizer,
            recipe=_recipe(library_model, method, bits, ignore),
            dataset=torch.utils.data.DataLoader(given, batch_size=None) if given else None,
            clear_sparse_session=True,  # its global session would keep the model
        )
    remove_dispatch(library_model)
    weights, stored = _dequantized(library_model)
    rescaled = _changed(model, library_model, weights)
    result = BackendResult(
        settings=f"groups of {GROUP_SIZE}, {_GRIDS[method]}, {text_read(sequences)}",
        weights=weights | rescaled,
        bits=stored | {name: stored_bits(parameter) for name, parameter in rescaled.items()},
        left_alone=matrices_besides(model, weights),
    )
    return result, library_model


def _recipe(model: torch.nn.Module, method: MethodName, bits: int, ignore: list[str]) -> list[Any]:
    from compressed_tensors.utils import match_named_modules
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from llmcompressor.modifiers.transform.awq import AWQModifier, get_layer_mappings_from_model

    if method == "RTN":
        return [QuantizationModifier(targets="Linear", scheme=f"W{bits}A16", ignore=ignore)]
    if method == "GPTQ":
        return [GPTQModifier(targets="Linear", scheme=f"W{bits}A16", ignore=ignore)]
    weights = {"num_bits": bits, "type": "int", "strategy": "group", "group_size": GROUP_SIZE, "symmetric": False}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}  # W4A16_ASYM, which has no preset at other bits
    # Where all layers that a mapping scales are ignored, the library divides by zero.
    mappings = get_layer_mappings_from_model(model)
    mappings = [m for m in mappings if any(match_named_modules(model, m.balance_layers, ignore))]
    return [AWQModifier(mappings=mappings), QuantizationModifier(config_groups=groups, ignore=ignore)]


def _indivisible(model: torch.nn.Module) -> list[str]:
    layers = ((name, module) for name, module in model.named_modules() if isinstance(module, torch.nn.Linear))
    return [name for name, layer in layers if layer.in_features % GROUP_SIZE]


def _dequantized(library_model: torch.nn.Module) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Weights unpacked from the packed format, and its bits without the shape that it also stores."""
    from compressed_tensors.compressors import BaseCompressor

    packing = BaseCompressor.get_value_from_registry("pack-quantized")
    weights: dict[str, torch.Tensor] = {}
    stored: dict[str, float] = {}
    for name, module in library_model.named_modules():
        scheme = getattr(module, "quantization_scheme", None)
        if scheme is None:
            continue
        state = {key: value.detach() for key, value in module.named_parameters(recurse=False) if key != "bias"}
        packed = packing.compress(state, scheme)
        weights[f"{name}.weight"] = packing.decompress(packed, scheme)["weight"].cpu()
        stored[f"{name}.weight"] = stored_bits(*(value for key, value in packed.items() if key != "weight_shape"))
    return weights, stored


def _changed(
    model: torch.nn.Module, library_model: torch.nn.Module, quantized: Iterable[str]
) -> dict[str, torch.Tensor]:
    """Parameters that are not quantized but changed."""
    names = set(quantized)
    ours = ((name, parameter) for name, parameter in model.named_parameters() if name not in names)
    theirs = ((name, before, library_model.get_parameter(name).detach().cpu()) for name, before in ours)
    return {name: after for name, before, after in theirs if not torch.equal(before.detach().cpu(), after)}


@contextlib.contextmanager
def _config_on_disk(model: Any) -> Iterator[None]:
    """`oneshot` reads the configuration again from the source of the model, which may be the network or nowhere."""
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        model.config._name_or_path = folder
        yield


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """No progress bars; each warning of the library once."""
    from llmcompressor.logger import LoggerConfig, configure_logger
    from loguru import logger

    configure_logger(LoggerConfig(console_log_level="ERROR"))
    messages: list[str] = []
    # Its level for measurements lies above that of warnings.
    sink = logger.add(
        lambda message: messages.append(message.record["message"]), filter=lambda r: r["level"].name == "WARNING"
    )
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.remove(sink)
    for message in dict.fromkeys(messages):
        if "No accelerator" not in message and "tokenizer parallelism" not in message:
            warnings.warn(message, stacklevel=2)


@contextlib.contextmanager
def _pinning_where_possible() -> Iterator[None]:
    """AWQ pins memory, which torch refuses without an accelerator."""
    if torch.accelerator.is_available():
        yield
        return
    pin_memory = torch.Tensor.pin_memory
    setattr(torch.Tensor, "pin_memory", lambda self, *_, **__: self)  # noqa: B010
    try:
        yield
    finally:
        setattr(torch.Tensor, "pin_memory", pin_memory)  # noqa: B010


def _backend(method: MethodName, summary: str) -> Backend:
    return Backend(
        f"llmcompressor-{method.lower()}",
        summary,
        library="llmcompressor",
        extra="llmcompressor",
        bits=(3, 4, 8),
        reads_text=method != "RTN",
        run=partial(quantize, method=method),
    )


BACKENDS = (
    _backend("RTN", "llmcompressor without data: round to nearest in groups of 128."),
    _backend("GPTQ", "llmcompressor's GPTQ: second-order rounding in groups of 128."),
    _backend("AWQ", "llmcompressor's AWQ: input scales moved into the weights; reads at most 64 passages."),
)
