"""The formats that each tensor may have: all that the runtime loads, the same for tensors that it fuses."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from laaciq.errors import BadOption
from laaciq.models import Anatomy
from laaciq.options import Effort, Runtime
from laaciq.planning.runtimes import RUNTIMES
from laaciq.planning.search_space import StorageFormat, TensorGroup
from laaciq.quantization.plan import TensorPlan


def make_tensor_groups(tensors: list[TensorPlan], effort: Effort, runtime: Runtime) -> list[TensorGroup]:
    """Tensor groups with their formats. `tensors` fix everything except what a format says. Sizes are those in the runtime's files."""
    rules = RUNTIMES[runtime]
    members_of: dict[str, list[TensorPlan]] = {}
    for tensor in tensors:
        members_of.setdefault(rules.group_name(tensor.name), []).append(tensor)
    groups = []
    for name, members in members_of.items():
        choices = [tuple(_applied(storage, tensor) for tensor in members) for storage in rules.formats[effort]]
        possible = _distinct(plans for plans in choices if all(map(rules.loads, plans)))
        if not possible:
            raise BadOption(f"no storage format fits {name} under --runtime {runtime}: choose another --runtime")
        sizes = np.array([sum(map(rules.stored_bits, plans)) for plans in possible])
        groups.append(TensorGroup(possible, sizes))
    return groups


def base_plans(anatomy: Anatomy, *, symmetric: bool, token_matrices: bool) -> list[TensorPlan]:
    """A plan for every matrix that may be quantized: compensated rounding in the blocks, still in 16 bits."""
    plans = [
        TensorPlan(
            name=linear.name, shape=linear.shape, bits=16, group_size=128, symmetric=symmetric,
            clip="effective", rounding="compensated",
        )
        for linear in anatomy.linears
    ]  # fmt: skip
    if token_matrices:
        plans += [
            TensorPlan(
                name=matrix.name, shape=matrix.shape, bits=16, group_size=128, symmetric=symmetric, clip="mse",
                used_by=matrix.used_by,
            )
            for matrix in anatomy.token_matrices
            if matrix.obstacle is None
        ]  # fmt: skip
    return plans


def _applied(storage: StorageFormat, tensor: TensorPlan) -> TensorPlan:
    plan = storage.applied(tensor)
    return plan.model_copy(update={"rank": min(plan.rank, *plan.shape)})


def _distinct(choices: Iterable[tuple[TensorPlan, ...]]) -> list[tuple[TensorPlan, ...]]:
    """Formats without duplicates, such as groups wider than a row."""
    distinct: dict[tuple[object, ...], tuple[TensorPlan, ...]] = {}
    for plans in choices:
        distinct.setdefault(tuple((p.bits, p.group_inputs, p.kept, p.rank, p.symmetric) for p in plans), plans)
    return list(distinct.values())
