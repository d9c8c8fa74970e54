"""From codes, scales and zero points to weights: W = s·(q − z), s and z shared by a group of inputs."""

from __future__ import annotations

import torch


def affine_weights(
    codes: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | float, group_of: torch.Tensor
) -> torch.Tensor:
    """Codes (outputs, inputs), scales and zero points (outputs, groups), and the group of each input → float32 weights.

    As many rows of scales as of codes, or one for all. The zero points may be one number.
    """
    weights = codes.to(torch.float32)
    weights -= zeros[:, group_of] if isinstance(zeros, torch.Tensor) else zeros
    weights *= scales[:, group_of]
    return weights


def groups_in_order(inputs: int, group_size: int) -> torch.Tensor:
    """The group of each input where groups are neighbours; −1 puts all inputs into one."""
    return torch.arange(inputs) // (group_size if group_size > 0 else max(inputs, 1))
