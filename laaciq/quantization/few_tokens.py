"""Experts that too few calibration tokens are sent to. Their second moments are unknown in most directions, so they are rounded to nearest."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field

from laaciq.models import LinearLayer
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.second_moments import SecondMoments


@dataclass
class FewTokens:
    """Collects layers of experts that read fewer tokens than they have inputs."""

    layers: list[LinearLayer] = field(default_factory=list)
    experts: int = 0
    fewest: int | None = None

    def see(self, layers: Iterable[LinearLayer], moments: dict[str, SecondMoments]) -> None:
        """Remove from `moments` those of layers that read too few tokens. All layers of an expert share the same tokens."""
        members = [layer for layer in layers if layer.expert is not None]
        self.experts += len({(layer.experts, layer.expert) for layer in members})
        for layer in members:
            tokens = moments[layer.name].tokens if layer.name in moments else 0
            if tokens < layer.shape[1]:
                moments.pop(layer.name, None)
                self.layers.append(layer)
                self.fewest = tokens if self.fewest is None else min(self.fewest, tokens)

    def warn(self) -> None:
        """Say how many experts fell back, if any did."""
        if self.layers:
            count = len({(layer.experts, layer.expert) for layer in self.layers})
            warnings.warn(
                f"{count} of {self.experts} experts were sent fewer calibration tokens than a projection has inputs (the fewest: "
                f"{self.fewest}): {len(self.layers)} of their projections are rounded to nearest; more calibration text avoids this",
                stacklevel=2,
            )


def nearest_plan(plan: TensorPlan) -> TensorPlan:
    """The same storage, without text: the grid of the smallest squared error, and rounding to nearest."""
    return plan.model_copy(update={"clip": "mse", "rounding": "nearest", "keep_by": "magnitude"})
