"""The formats that each tensor may have: all that the runtime loads, the same for tensors that it fuses."""

from __future__ import annotations

import re
from collections.abc import Iterable

from laaciq.errors import BadOption
from laaciq.models import Anatomy
from laaciq.options import Runtime
from laaciq.planning.search_space import StorageFormat, TensorGroup
from laaciq.quantization.plan import TensorPlan

# vLLM fuses these projections of a block into one matrix; they must be stored alike. By the last part of a layer's name. It also fuses all
# experts of a block.
_FUSED = [{"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj"}]
_EXPERT = re.compile(r"^(.*\.experts)\.\d+\.")
VLLM_GROUPS = (32, 64, 128)


def make_tensor_groups(tensors: list[TensorPlan], formats: list[StorageFormat], runtime: Runtime) -> list[TensorGroup]:
    """Tensor groups with their formats. `tensors` fix everything except bits, group size and the share of kept weights."""
    members_of: dict[str, list[TensorPlan]] = {}
    for tensor in tensors:
        members_of.setdefault(fused_name(tensor.name) if runtime == "vllm" else tensor.name, []).append(tensor)
    groups = []
    for name, members in members_of.items():
        choices = [tuple(_applied(storage, tensor, runtime) for tensor in members) for storage in formats]
        possible = [plans for plans in choices if runtime != "vllm" or all(map(_vllm_loads, plans))]
        groups.append(TensorGroup(_distinct(possible)))
        if not possible:
            raise BadOption(f"no storage format fits {name} under --runtime {runtime}: choose another --runtime")
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


def _applied(storage: StorageFormat, tensor: TensorPlan, runtime: Runtime) -> TensorPlan:
    plan = storage.applied(tensor)
    plan = plan.model_copy(update={"rank": min(plan.rank, *plan.shape)})
    # vLLM's 8-bit kernels do not support zero points.
    return plan.model_copy(update={"symmetric": True}) if runtime == "vllm" and plan.bits == 8 else plan


def _vllm_loads(plan: TensorPlan) -> bool:
    """Formats of pack-quantized layers that vLLM's kernels load. Embeddings and kept weights stay in 16 bits."""
    if not plan.quantized:
        return True
    fits = isinstance(plan.group_size, int) and plan.group_size in VLLM_GROUPS and plan.shape[1] % plan.group_size == 0
    return plan.bits in (4, 8) and fits and not plan.keep and not plan.rank and not plan.used_by


def fused_name(name: str) -> str:
    """A name that is the same for all layers that vLLM fuses into one."""
    if expert := _EXPERT.match(name):
        return expert[1]
    path, _, last = name.removesuffix(".weight").rpartition(".")
    together = next((sorted(names) for names in _FUSED if last in names), [last])
    return f"{path}.{'+'.join(together)}"


def _distinct(choices: Iterable[tuple[TensorPlan, ...]]) -> list[tuple[TensorPlan, ...]]:
    """Formats without duplicates, such as groups wider than a row."""
    distinct: dict[tuple[object, ...], tuple[TensorPlan, ...]] = {}
    for plans in choices:
        distinct.setdefault(tuple((p.bits, p.group_inputs, p.kept, p.rank, p.symmetric) for p in plans), plans)
    return list(distinct.values())
