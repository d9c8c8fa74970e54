"""RTN, GPTQ and AWQ of llmcompressor, through `oneshot` with its own defaults, in groups of 128 inputs, stored as its `pack-quantized` format.

RTN is the preset W4A16 (or W3A16, W8A16) without data: symmetric, to the nearest code. GPTQ is the same preset with columns in the order of
their activations, damping 0.01. AWQ is W4A16_ASYM (or the same at other bits): affine, a grid of 20 scales that move from the layer before
into the quantized one, so that it changes norms and biases too.

A text is a sequence, cut at `max_length` tokens, as in the library's examples. It refuses a matrix whose inputs 128 does not divide (with fewer
than 128 it fails instead) and says to ignore it, as is done here. Of AWQ's mappings it skips those whose shapes do not fit: value → output
where heads share keys. Norms that multiply by 1 + w come back rounded as 1 + w, from GPTQ too.
"""

from __future__ import annotations

import contextlib
import copy
import io
import sys
import tempfile
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

import torch

from laaciq.backends.contract import Backend, BackendResult, logit_difference, matrices_besides, stored_bits
from laaciq.errors import BadOption

Method = Literal["RTN", "GPTQ", "AWQ"]
GROUP_SIZE = 128
# AWQ passes each of them through each block some hundred times; with more it takes an hour on a model of any size.
AWQ_PASSAGES = 64
_GRIDS: dict[Method, str] = {
    "RTN": "symmetric, no text read",
    "GPTQ": "symmetric, activation order, damping 0.01",
    "AWQ": "affine, 20 scales tried",
}
# As in the library's examples.
MAX_LENGTH = 2048


def quantize(
    model: torch.nn.Module,
    tokenizer: Any,
    texts: list[str],
    *,
    method: Method,
    bits: int,
    device: str = "cpu",
    max_length: int = MAX_LENGTH,
) -> BackendResult:
    """RTN reads no text, AWQ the first 64 texts."""
    return _quantize(model, tokenizer, texts, method, bits, device, max_length)[0]


def check(
    model: torch.nn.Module,
    tokenizer: Any,
    texts: list[str],
    *,
    method: Method,
    bits: int,
    device: str = "cpu",
    max_length: int = MAX_LENGTH,
) -> tuple[BackendResult, float]:
    found, library_model = _quantize(model, tokenizer, texts, method, bits, device, max_length)
    ours = copy.deepcopy(model).to(device)
    found.put_into(ours)
    return found, logit_difference(ours, library_model.to(device), tokenizer, texts[0])


def _quantize(
    model: torch.nn.Module,
    tokenizer: Any,
    texts: list[str],
    method: Method,
    bits: int,
    device: str,
    max_length: int,
) -> tuple[BackendResult, torch.nn.Module]:
    # llmcompressor logs to what standard output is when it is imported.
    with contextlib.redirect_stdout(sys.stderr):
        from compressed_tensors.offload import remove_dispatch
        from llmcompressor import oneshot

    accelerator = torch.accelerator.current_accelerator(check_available=True)
    taken = "cpu" if accelerator is None else accelerator.type
    if taken != torch.device(device).type:
        raise BadOption(f"llmcompressor takes {taken} by itself: pass that device, or hide it, not {device}.")
    # On the CPU: the library moves each block to the device while it works on it.
    library_model = copy.deepcopy(model).cpu()
    read = {"RTN": [], "GPTQ": texts, "AWQ": texts[:AWQ_PASSAGES]}[method]
    sequences: Any = _sequences(tokenizer, read, min(max_length, _positions(model)))
    ignore = ["lm_head", *_indivisible(model)]
    with _config_on_disk(library_model), _quietly(), _pinning_where_possible():
        oneshot(
            model=library_model,
            processor=tokenizer,
            recipe=_recipe(library_model, method, bits, ignore),
            dataset=torch.utils.data.DataLoader(sequences, batch_size=None) if sequences else None,
            clear_sparse_session=True,  # its global session would keep the model
        )
    remove_dispatch(library_model)
    weights, stored = _dequantized(library_model)
    quantized = list(weights)
    smoothed = _changed(model, library_model, quantized)
    tokens = sum(sequence["input_ids"].numel() for sequence in sequences)
    from_text = f", {len(sequences)} sequences of {tokens} tokens in all" if sequences else ""
    found = BackendResult(
        name=f"{method}, {bits} bits",
        settings=f"llmcompressor, groups of {GROUP_SIZE}, {_GRIDS[method]}{from_text}",
        weights=weights | smoothed,
        bits=stored | {name: stored_bits(parameter) for name, parameter in smoothed.items()},
        left_alone=matrices_besides(model, quantized),
    )
    return found, library_model


def _recipe(model: torch.nn.Module, method: Method, bits: int, ignore: list[str]) -> list[Any]:
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


def _sequences(tokenizer: Any, texts: list[str], max_length: int) -> list[dict[str, torch.Tensor]]:
    made = (tokenizer(text, max_length=max_length, truncation=True, return_tensors="pt") for text in texts)
    return [{key: encoded[key] for key in ("input_ids", "attention_mask")} for encoded in made]


def _positions(model: torch.nn.Module) -> int:
    return getattr(model.config, "max_position_embeddings", None) or MAX_LENGTH


def _indivisible(model: torch.nn.Module) -> list[str]:
    layers = ((name, module) for name, module in model.named_modules() if isinstance(module, torch.nn.Linear))
    return [name for name, layer in layers if layer.in_features % GROUP_SIZE]


def _dequantized(library_model: torch.nn.Module) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """The weights that come back from the packed format, and its bits without the shape that it also writes down."""
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


def _changed(model: torch.nn.Module, library_model: torch.nn.Module, quantized: list[str]) -> dict[str, torch.Tensor]:
    """Parameters that are not quantized, but not what they were either."""
    ours = ((name, parameter) for name, parameter in model.named_parameters() if name not in quantized)
    theirs = ((name, before, library_model.get_parameter(name).detach().cpu()) for name, before in ours)
    return {name: after for name, before, after in theirs if not torch.equal(before.detach().cpu(), after)}


@contextlib.contextmanager
def _config_on_disk(model: Any) -> Iterator[None]:
    """`oneshot` reads the configuration again from where the model came from, which may be the network or nowhere."""
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        model.config._name_or_path = folder
        yield


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """No progress bars; what the library warns of, once each."""
    from llmcompressor.logger import LoggerConfig, configure_logger
    from loguru import logger

    configure_logger(LoggerConfig(console_log_level="ERROR"))
    said: list[str] = []
    # Its own level for measurements lies above that of warnings.
    sink = logger.add(
        lambda message: said.append(message.record["message"]), filter=lambda r: r["level"].name == "WARNING"
    )
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.remove(sink)
    for message in dict.fromkeys(said):
        if "No accelerator" not in message and "tokenizer parallelism" not in message:
            warnings.warn(message, stacklevel=2)


@contextlib.contextmanager
def _pinning_where_possible() -> Iterator[None]:
    """AWQ pins memory, which torch refuses where there is no accelerator."""
    if torch.accelerator.is_available():
        yield
        return
    pin_memory = torch.Tensor.pin_memory
    setattr(torch.Tensor, "pin_memory", lambda self, *_, **__: self)  # noqa: B010
    try:
        yield
    finally:
        setattr(torch.Tensor, "pin_memory", pin_memory)  # noqa: B010


def _backend(method: Method, summary: str) -> Backend:
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
    _backend("AWQ", "llmcompressor's AWQ: scales of inputs moved into the weights; reads 64 passages at most."),
)
