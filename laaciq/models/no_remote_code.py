"""Configuration and tokenizer of a model folder, read without running any code that the folder holds or names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from transformers import AutoConfig, AutoTokenizer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from laaciq.errors import BrokenModel
from laaciq.models.folder import ModelFolder

# Without it, transformers asks on standard input whether to run the code of a folder.
NO_CODE = {"trust_remote_code": False}
# Entries that name classes or functions in Python files of the folder, or of another one on the hub.
_NAMES_OF_CODE = ("auto_map", "custom_generate", "custom_pipelines")


def read_config(folder: ModelFolder) -> Any:
    """The configuration for transformers. It names no code, and neither does what is saved with it. Attention is what transformers takes by
    default: an entry could name a kernel on the hub, which transformers would download and run."""
    config = AutoConfig.from_pretrained(folder.path, **NO_CODE, **gguf_option(folder))
    for part in _parts(config):
        _forget_code(part.__dict__)
    _require_softmax(folder, config)
    config._attn_implementation = None
    config._experts_implementation = None
    return config


def read_tokenizer(folder: ModelFolder) -> Any:
    """The tokenizer of a folder. It names no code, and neither does what is saved with it."""
    tokenizer = AutoTokenizer.from_pretrained(folder.path, **NO_CODE, **gguf_option(folder))
    _forget_code(tokenizer.__dict__)
    _forget_code(tokenizer.init_kwargs)
    return tokenizer


def _require_softmax(folder: ModelFolder, config: Any) -> None:
    """Raise an error for a model that was trained with another softmax (`recipes/attention.py`), unless this process has registered it:
    transformers would take the plain one, and all figures would be wrong.
    """
    softmax = getattr(config, "attention_softmax", None)
    if softmax is not None and softmax not in ALL_ATTENTION_FUNCTIONS:
        raise BrokenModel(
            f"{folder.name} was trained with attention_softmax = {softmax!r} (config.json), which transformers does not have: measure it with "
            "recipes/measure_variants.py"
        )


def gguf_option(folder: ModelFolder) -> dict[str, Any]:
    return {} if folder.gguf_file is None else {"gguf_file": folder.gguf_file}


def _parts(config: Any) -> Iterator[Any]:
    """The configuration, and those of the models within the model."""
    yield config
    for name in config.sub_configs:
        if (part := getattr(config, name, None)) is not None:
            yield from _parts(part)


def _forget_code(entries: dict[str, Any]) -> None:
    for name in _NAMES_OF_CODE:
        entries.pop(name, None)
