"""Softmax with an extra logit of zero, as the attention of a transformers model: exp(x_i) / (1 + Σ exp(x_j)).

A head can then attend to nothing. With the plain softmax it parks its attention on one token instead, an attention sink, which needs
outliers (Miller 2023, "Attention is off by one"; Xiao et al. 2023). The extra logit is that of one more key, which is zero, with a value
of zero.
"""

from __future__ import annotations

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask

PLAIN, EXTRA_LOGIT = "softmax", "softmax1"
# The zero key takes one of these places, the others stay masked: fast kernels want lengths that are multiples of eight.
_PLACES = 8


def register() -> None:
    """Let transformers know this attention. Without it, `laaciq` refuses checkpoints that were trained with it."""
    AttentionInterface.register(EXTRA_LOGIT, attend)
    AttentionMaskInterface.register(EXTRA_LOGIT, sdpa_mask)


def use_attention(model: PreTrainedModel, name: str) -> None:
    """A loaded checkpoint has the plain softmax: this has to be called again. Its config.json names the softmax that it was trained with."""
    if name == EXTRA_LOGIT:
        register()
        model.config._attn_implementation = EXTRA_LOGIT
        model.config.attention_softmax = EXTRA_LOGIT
    elif name != PLAIN:
        raise SystemExit(f"unknown attention {name!r}: give {PLAIN!r} or {EXTRA_LOGIT!r}")


def attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """(batch, heads, length, width) → (batch, length, heads, width), as transformers' own attention functions."""
    groups = query.shape[1] // key.shape[1]
    key, value = (nn.functional.pad(part.repeat_interleave(groups, 1), (0, 0, 0, _PLACES)) for part in (key, value))
    queries, keys = query.shape[2], key.shape[2] - _PLACES
    if attention_mask is None:
        mask = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=query.device).tril(keys - queries)
    else:
        mask = attention_mask
    zero_key = torch.arange(_PLACES, device=query.device) == 0
    mask = torch.cat([mask, zero_key.expand(*mask.shape[:-1], _PLACES)], dim=-1)
    attended = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
    return attended.transpose(1, 2).contiguous(), None
