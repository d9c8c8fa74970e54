"""Parameters that are not quantized: the reason for each, and how many weights of the blocks they are.

Weights of a block are its matrices and convolutions. Vectors, such as norms and biases, count in the size of the model but not here.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from torch import nn
from torch.nn.modules.conv import _ConvNd

from laaciq.errors import BadOption, LaaciqError

if TYPE_CHECKING:
    from laaciq.models.anatomy import Anatomy

# Largest share of the blocks' weights that may stay in 16 bits without --allow-left-alone.
LEFT_ALONE_LIMIT = 0.05
_STATE_SPACE = ("mamba", "ssm", "deltanet")
_STATE_SPACE_NAMES = ("A_log", "D", "dt_bias")
_PROJECTOR = "projector"
# Words in the paths of what a model has beside its language model.
_BESIDE = {"vision part": ("vision", "visual", "image"), "audio part": ("audio", "speech")}


def why_left_alone(model: nn.Module, name: str) -> str:
    """The reason why the parameter of this name is not quantized: what it is."""
    path, _, leaf = name.rpartition(".")
    module = model.get_submodule(path)
    kind = type(module).__name__.lower()
    reasons = {
        "norm": "norm" in kind,
        "router": is_router(model, path),
        "convolution": isinstance(module, _ConvNd),
        "state-space parameter": leaf in _STATE_SPACE_NAMES or any(word in kind for word in _STATE_SPACE),
        "activation": "activation" in kind,
        "bias": leaf.endswith("bias"),
        "embedding table": isinstance(module, nn.Embedding),
        "linear layer outside the blocks": isinstance(module, nn.Linear),
        "fused experts": "experts" in kind,
    }
    return next((reason for reason, holds in reasons.items() if holds), f"{leaf} of {type(module).__name__}")


def language_part(model: nn.Module) -> str:
    """The path of the language model inside a model with vision or other parts: the module that holds the token embeddings. Empty for a
    language model.
    """
    config = getattr(model, "config", None)
    if config is None or config.get_text_config() is config or getattr(config, "is_encoder_decoder", False):
        return ""
    embeddings = model.get_input_embeddings()  # type: ignore[operator]
    return next(path for path, module in model.named_modules() if module is embeddings).rpartition(".")[0]


def part_beside(name: str) -> str:
    """What a parameter outside the language model belongs to."""
    return next((part for part, words in _BESIDE.items() if any(word in name for word in words)), _PROJECTOR)


def is_router(model: nn.Module, path: str) -> bool:
    """A router is part of a module that is called so, or has weights and no parts and stands beside the experts that it sends tokens to."""
    parts = path.split(".") if path else []
    within = [model.get_submodule(".".join(parts[: depth + 1])) for depth in range(len(parts))]
    if not within or any("router" in type(module).__name__.lower() for module in within):
        return bool(within)
    beside = model.get_submodule(".".join(parts[:-1]))._modules
    return "experts" in beside and parts[-1] != "experts" and not list(within[-1].children())


def announced_left_alone(anatomy: Anatomy, *, allowed: bool) -> str | None:
    """Sentences on what is not quantized: weights of the blocks, and parts beside the language model; None if there are neither. Raises an
    error if too many weights of the blocks are not, unless that is `allowed`, and if it is allowed in vain.
    """
    sentences = [_left_in_blocks(anatomy, allowed), _left_beside(anatomy)]
    return " ".join(filter(None, sentences)) or None


def _left_beside(anatomy: Anatomy) -> str | None:
    parts = [part for part in anatomy.left_alone if part.reason in (*_BESIDE, _PROJECTOR)]
    if not parts:
        return None
    kinds = ", ".join(dict.fromkeys(part.reason or "" for part in parts))
    return f"Beside the language model, {sum(part.count for part in parts) / 1e6:.3g} M parameters stay in 16 bits ({kinds})."


def _left_in_blocks(anatomy: Anatomy, allowed: bool) -> str | None:
    left = anatomy.left_in_blocks
    share = sum(part.count for part in left) / anatomy.block_weights
    if allowed and share <= LEFT_ALONE_LIMIT:
        raise BadOption(
            f"--allow-left-alone has no effect here: {_percent(share)} of the block weights stay in 16 bits, and up to "
            f"{_percent(LEFT_ALONE_LIMIT)} may; leave it out"
        )
    if not left:
        return None
    reasons: Counter[str] = Counter()
    for part in left:
        reasons[part.reason or ""] += part.count
    words = ", ".join(f"{reason} {_percent(count / anatomy.block_weights)}" for reason, count in reasons.most_common())
    if share > LEFT_ALONE_LIMIT and not allowed:
        raise LaaciqError(
            f"{_percent(share)} of the block weights would stay in 16 bits, because they are not in linear layers ({words}): "
            "give --allow-left-alone if that is what you want, or use another model"
        )
    return f"{_percent(share)} of the block weights stay in 16 bits ({words})."


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"
