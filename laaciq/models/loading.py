"""Loading any transformers language model, safely: safetensors, no code from the checkpoint, nothing missing, nothing NaN."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
import transformers
from transformers import GenerationConfig
from transformers.models.auto import modeling_auto

from laaciq.engine.bfloat16 import keep_onednn_safe
from laaciq.errors import BrokenModel, LaaciqError
from laaciq.models.anatomy import Anatomy, dissect
from laaciq.models.checks import check_files, check_loaded, misfit
from laaciq.models.computing import default_dtype, pick_device
from laaciq.models.experts import split_experts
from laaciq.models.folder import ModelFolder
from laaciq.models.foreign import ForeignFormat, find_format, missing_library, read_weights
from laaciq.models.no_remote_code import NO_CODE, gguf_option, read_config, read_tokenizer
from laaciq.models.offloading import BlockTensors, OffloadedBlocks, hollow_copy, place_blocks, tensor_bytes
from laaciq.models.plain_weights import want_plain_weights

Kind = Literal["causal", "masked", "encoder-decoder"]
_AUTO_CLASS = {
    "causal": transformers.AutoModelForCausalLM,
    "masked": transformers.AutoModelForMaskedLM,
    "encoder-decoder": transformers.AutoModelForSeq2SeqLM,
}
# A causal model with vision or other parts beside it.
_WRAPPED = transformers.AutoModelForImageTextToText
# In the error of transformers that does not say which tensor has another shape.
_SHAPES_DIFFER = "ignore_mismatched_sizes"


@dataclass(frozen=True)
class LanguageModel:
    """A loaded model with its tokenizer, in evaluation mode. Some of its blocks may be `offloaded`: their weights are on the device only
    while they run, or while they are `present`.
    """

    folder: ModelFolder
    kind: Kind
    module: Any
    tokenizer: Any
    offloaded: OffloadedBlocks | None = None

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device if self.offloaded is None else self.offloaded.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of numbers in which it computes."""
        return self.module.get_input_embeddings().weight.dtype

    @cached_property
    def blocks(self) -> list[Any]:
        return [self.module.get_submodule(name) for name in self.anatomy.block_names]

    def present(self, block: int) -> AbstractContextManager[None]:
        """Context manager: the weights of a block are on the device, and can be read there."""
        return nullcontext() if self.offloaded is None else self.offloaded.present(block)

    def block_tensors(self, block: int) -> BlockTensors:
        """The weights of a block, on the device."""
        with self.present(block):
            parameters = self.blocks[block].named_parameters(remove_duplicate=False)
            return {name: value.detach() for name, value in parameters} | dict(self.blocks[block].named_buffers())

    def without_block_weights(self) -> LanguageModel:
        """A copy whose blocks have no weights."""
        return replace(self, module=hollow_copy(self.module, self.blocks, self.offloaded), offloaded=None)

    @property
    def vocabulary(self) -> int:
        return self.module.get_input_embeddings().num_embeddings

    @property
    def longest(self) -> int | None:
        """Most positions in one pass; None where the architecture sets no bound."""
        config = self.module.config.get_text_config()
        for key in ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length"):
            value = getattr(config, key, None)
            if isinstance(value, int) and value > 0:
                # RoBERTa's positions start after the padding index.
                offset = (config.pad_token_id or 0) + 1 if "roberta" in config.model_type else 0
                return value - offset
        return None

    @cached_property
    def anatomy(self) -> Anatomy:
        return dissect(self.module)


def load(
    folder: ModelFolder,
    *,
    device: str = "auto",
    dtype: torch.dtype | None = None,
    form: ForeignFormat | None = None,
    most_bytes: int | None = None,
    pinned_bytes: int = 0,
    tokenizer: Any = None,
) -> LanguageModel:
    """Load model and tokenizer, unless the `tokenizer` is there already: from GGUF it may take half a minute. Without a `dtype`, the model
    computes in float32 on a CPU, elsewhere in the type of the checkpoint.

    With `most_bytes`, its weights take no more than that on the device: blocks that do not fit are offloaded, for a GPU up to `pinned_bytes` of
    them to pinned memory. The others stay in their files.

    A checkpoint that another library quantized becomes a plain model with dequantized weights. `form` reads them; by default it is the
    format that config.json names.
    """
    place = pick_device(device)
    keep_onednn_safe()
    if place.type == "cuda":
        # cuDNN prepares attention anew for every shape of a batch, and texts of many lengths have many.
        torch.backends.cuda.enable_cudnn_sdp(False)
    check_files(folder)
    settings = folder.quantization
    form = form or find_format(settings)
    hint = "" if form else missing_library(settings)
    with _loading(f"{folder.name} does not load", hint, lambda: misfit(folder, _without_weights(folder)[1])):
        config = read_config(folder)
        kind = _kind(config)
        computing = dtype or default_dtype(place)
        # As it is stored, so that weights that are not needed yet stay in their files; they are converted when they are fetched.
        read_as = "auto" if most_bytes is not None else computing
        dequantized = want_plain_weights(config)
        if form is None:
            module, info = auto_class(config).from_pretrained(
                folder.path,
                config=config,
                dtype=read_as,
                output_loading_info=True,
                **NO_CODE,
                **gguf_option(folder),
            )
        else:
            module, info = _dequantized(folder, form, config, computing)
        tokenizer = read_tokenizer(folder) if tokenizer is None else tokenizer
    check_loaded(module, info, folder.name, hint)
    if dequantized:  # to bfloat16, whatever the type of the others
        module.to(module.dtype if computing == "auto" else computing)
    split_experts(module)
    module.eval().requires_grad_(False)
    for note in form.notes if form else ():
        warnings.warn(f"{folder.name}: {note}", stacklevel=2)
    model = LanguageModel(folder, kind, module, tokenizer)
    numbers = computing if isinstance(computing, torch.dtype) else None
    if most_bytes is None or tensor_bytes(module, numbers) <= most_bytes:
        module.to(place, numbers)
        return model
    pinned_bytes = pinned_bytes if place.type == "cuda" else 0
    offloaded = place_blocks(
        module, model.blocks, place, most_bytes=most_bytes, dtype=numbers, pinned_bytes=pinned_bytes
    )
    return replace(model, offloaded=offloaded)


def _dequantized(
    folder: ModelFolder, form: ForeignFormat, config: Any, dtype: torch.dtype | str
) -> tuple[Any, dict[str, Any]]:
    """The model with dequantized weights, and transformers' loading report."""
    if not isinstance(dtype, torch.dtype):
        dtype = config.dtype or torch.float16
    # The weights are passed in: transformers must not look for files.
    for name in ("quantization_config", "transformers_weights"):
        if hasattr(config, name):
            delattr(config, name)
    with torch.device("meta"):
        skeleton = auto_class(config).from_config(config, **NO_CODE)
    weights = read_weights(folder, form, skeleton, dtype)
    # Tensors of the right type become parameters as they are: no second copy.
    module, info = type(skeleton).from_pretrained(
        None, config=config, state_dict=weights, dtype=dtype, output_loading_info=True
    )
    if (folder.path / "generation_config.json").exists():
        module.generation_config = GenerationConfig.from_pretrained(folder.path)
    return module, info


def outline(folder: ModelFolder) -> tuple[Kind, Anatomy]:
    """Kind and anatomy of a model, from its configuration alone: no weights are read."""
    kind, module = _without_weights(folder)
    return kind, dissect(module)


def skeleton(folder: ModelFolder) -> LanguageModel:
    """The model with its tokenizer and without its weights: it cannot be run, but texts can be prepared for it and its shapes counted."""
    kind, module = _without_weights(folder)
    with _loading(f"{folder.name} has no tokenizer that loads"):
        tokenizer = read_tokenizer(folder)
    return LanguageModel(folder, kind, module, tokenizer)


def _without_weights(folder: ModelFolder) -> tuple[Kind, Any]:
    check_files(folder)
    with _loading(f"{folder.name} cannot be built"):
        config = read_config(folder)
        kind = _kind(config)
        with torch.device("meta"):
            module = auto_class(config).from_config(config, **NO_CODE)
            split_experts(module)
            return kind, module


def _kind(config: Any) -> Kind:
    """From the class that wrote the checkpoint; from the model type where the class is not stated (GGUF)."""
    if getattr(config, "is_encoder_decoder", False):
        return "encoder-decoder"
    written_by = " ".join(config.architectures or [])
    if "MaskedLM" in written_by or "ForPreTraining" in written_by:
        return "masked"
    if config.model_type in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES or _is_wrapped(config):
        return "causal"
    if config.model_type in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        return "masked"
    raise BrokenModel(
        f"{config.model_type} is not a language model that can be scored: give a causal, masked or encoder-decoder model"
    )


def auto_class(config: Any) -> Any:
    """The class of transformers that builds the whole model."""
    return _WRAPPED if _is_wrapped(config) else _AUTO_CLASS[_kind(config)]


def _is_wrapped(config: Any) -> bool:
    """True if the checkpoint was written by a class that has a language model inside, and holds its other parts too."""
    known = modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.get(config.model_type)
    if known is None or getattr(config, "is_encoder_decoder", False):
        return False
    if config.architectures:
        return known in config.architectures
    return config.model_type not in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


@contextmanager
def _loading(problem: str, hint: str = "", explain: Callable[[], str | None] = lambda: None) -> Iterator[None]:
    """Whatever transformers and its libraries raise on a broken folder becomes one sentence. `explain` may know better than they do."""
    with _quiet():
        try:
            yield
        except LaaciqError:
            raise
        except BaseException as error:
            # A panic of code in Rust, such as the tokenizers', is no `Exception`.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            reason = (str(error).strip().splitlines() or [""])[0]
            known = explain() if _SHAPES_DIFFER in reason else None
            raise BrokenModel(
                f"{problem} ({known or f'{type(error).__name__}: {reason}'}): copy it again{hint}"
            ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' warnings and progress bars: we report the same ourselves, and its bars would break ours."""
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers.logging.set_verbosity(verbosity)
