"""What each runtime loads, in one place: the storage formats to plan with, the rules for exported layers, the size in its files.

vLLM's rules are those of the kernels in its version 0.32.0: Marlin on GPUs, CPUWNA16 on CPUs. vLLM tries other kernels after Marlin, but none
that every installation has takes more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from laaciq.options import FULL_BITS, Effort, Runtime
from laaciq.options.values import ExportFormatName
from laaciq.planning.search_space import FORMATS, StorageFormat
from laaciq.quantization.plan import TensorPlan

# vLLM fuses these projections of a block into one matrix under the name before them, so they must be stored alike.
_FUSED = {"qkv_proj": {"q_proj", "k_proj", "v_proj"}, "gate_up_proj": {"gate_proj", "up_proj"}}
# An expert's projection: the experts of its block, its number, the projection.
EXPERT = re.compile(r"^(.*\.experts)\.(\d+)\.([^.]+)$")
_MARLIN_GROUPS = (32, 64, 128)
# Bits per weight of ggml's blocks of 32 weights, scales included.
BLOCK = 32
_Q4_0, _Q4_1, _Q8_0 = 4.5, 5.0, 8.5


@dataclass(frozen=True)
class StoredLayer:
    """A quantized linear layer of shape (outputs, inputs), as it is exported. A `group_size` of None means the whole row. `expert`: it is a
    projection of an expert.
    """

    shape: tuple[int, int]
    bits: int
    group_size: int | None
    symmetric: bool
    expert: bool = False

    @classmethod
    def of(cls, plan: TensorPlan) -> StoredLayer:
        group = None if plan.group_inputs == plan.shape[1] else plan.group_inputs
        return cls(plan.shape, plan.bits, group, plan.symmetric, is_expert(plan.name))


@dataclass(frozen=True)
class LayerRule:
    """A rule in words, and whether a layer keeps it."""

    words: str
    holds: Callable[[StoredLayer], bool]


@dataclass(frozen=True)
class RuntimeRules:
    """`reads` are the export formats that the runtime reads, `formats` the storage formats to plan with. `rules` hold for every quantized
    layer, `format_rules` for those of one export format. `alike` gives one name to all layers that must be stored alike. `token_matrices`:
    embeddings and heads may be quantized. `bits_per_weight` is what a quantized matrix takes in the runtime's file, None if that is what our
    checkpoint takes. In the formats of `no_mixtures` it loads no model with experts, in whatever number of bits they are.
    """

    name: str
    reads: tuple[ExportFormatName, ...]
    formats: Mapping[Effort, list[StorageFormat]]
    rules: tuple[LayerRule, ...] = ()
    format_rules: Mapping[str, tuple[LayerRule, ...]] = field(default_factory=dict)
    alike: Callable[[str], str] | None = None
    token_matrices: bool = True
    bits_per_weight: Callable[[TensorPlan], float] | None = None
    no_mixtures: tuple[ExportFormatName, ...] = ()

    def loads(self, plan: TensorPlan) -> bool:
        """True if the runtime loads a tensor that is stored by this plan."""
        if not plan.quantized:
            return True
        # Only our own layers run kept weights and corrections.
        if self.reads and (plan.kept or plan.rank):
            return False
        if plan.used_by and not self.token_matrices:
            return False
        return all(rule.holds(StoredLayer.of(plan)) for rule in self.rules)

    def stored_bits(self, plan: TensorPlan) -> int:
        """Size of a tensor in the runtime's file, in bits."""
        if self.bits_per_weight is None or not plan.quantized:
            return plan.stored_bits
        return int(self.bits_per_weight(plan) * plan.weights)

    def block_bits_per_weight(self, tensors: list[TensorPlan]) -> float:
        return sum(map(self.stored_bits, tensors)) / sum(tensor.weights for tensor in tensors)

    def group_name(self, name: str) -> str:
        """A name that is the same for all layers that must be stored alike."""
        return name if self.alike is None else self.alike(name)

    def rules_for(self, export_format: str) -> tuple[LayerRule, ...]:
        return (*self.rules, *self.format_rules.get(export_format, ()))


def is_expert(name: str) -> bool:
    """True for a projection of an expert, by its name or that of its tensor."""
    return EXPERT.match(name.removesuffix(".weight")) is not None


def fused_name(name: str) -> str:
    """vLLM's name of the layer into which it fuses this one; its own name if there is none. The experts of a block are one layer."""
    layer = name.removesuffix(".weight")
    if (expert := EXPERT.match(layer)) is not None:
        return expert[1]
    path, _, last = layer.rpartition(".")
    return f"{path}.{next((fused for fused, members in _FUSED.items() if last in members), last)}"


def stack_name(name: str) -> str:
    """The layer whose tensor holds this one's in GGUF: one for a projection of all experts of a block, else the layer itself."""
    layer = name.removesuffix(".weight")
    expert = EXPERT.match(layer)
    return f"{expert[1]}.{expert[3]}" if expert else layer


def _block_bits(plan: TensorPlan) -> float:
    """Bits per weight of the smallest block type that holds the grid; see `laaciq.exporting.gguf_blocks`."""
    if plan.shape[1] % BLOCK or plan.group_inputs % BLOCK:
        return FULL_BITS
    if plan.bits <= 3 or (plan.bits == 4 and plan.symmetric):
        return _Q4_0
    return _Q4_1 if plan.bits == 4 else _Q8_0


def _bits(*offered: int) -> LayerRule:
    return LayerRule(f"{' or '.join(map(str, offered))} bits", lambda layer: layer.bits in offered)


def _divides(layer: StoredLayer) -> bool:
    return layer.group_size is None or layer.shape[1] % layer.group_size == 0


_GPU_RULES = (
    _bits(4, 8),
    LayerRule(
        f"groups of {', '.join(map(str, _MARLIN_GROUPS))} that divide the inputs, or whole rows",
        lambda layer: layer.group_size is None or (layer.group_size in _MARLIN_GROUPS and _divides(layer)),
    ),
    LayerRule("no zero points in 8 bits", lambda layer: layer.symmetric or layer.bits != 8),
)
_CPU_RULES = (
    _bits(4),
    LayerRule(
        "groups of an even size that divide the inputs, or whole rows",
        lambda layer: layer.group_size is None or (layer.group_size % 2 == 0 and _divides(layer)),
    ),
    LayerRule("outputs and inputs in multiples of 32", lambda layer: not any(size % 32 for size in layer.shape)),
    # Its kernels for them need AMX (Intel) or zentorch (AMD).
    LayerRule("experts in 16 bits", lambda layer: not layer.expert),
)
_SYMMETRIC = LayerRule("no zero points in gptq", lambda layer: layer.symmetric)


def _same(*formats: StorageFormat) -> dict[Effort, list[StorageFormat]]:
    """The same formats whatever the effort."""
    return {"fast": list(formats), "full": list(formats)}


_FOUR_BITS = [StorageFormat(4, group) for group in (128, 64, 32)]
_UNQUANTIZED = StorageFormat(FULL_BITS)
RUNTIMES: dict[Runtime, RuntimeRules] = {
    "laaciq": RuntimeRules("transformers with laaciq", (), FORMATS),
    "vllm": RuntimeRules(
        "vLLM on a GPU",
        ("compressed-tensors", "gptq"),
        _same(*_FOUR_BITS, StorageFormat(8, 128, symmetric=True), _UNQUANTIZED),
        _GPU_RULES,
        {"gptq": (_SYMMETRIC,)},
        alike=fused_name,
        token_matrices=False,
    ),
    "vllm-cpu": RuntimeRules(
        "vLLM on a CPU",
        ("compressed-tensors", "gptq"),
        _same(*_FOUR_BITS, _UNQUANTIZED),
        _CPU_RULES,
        {"gptq": (_SYMMETRIC,)},
        alike=fused_name,
        token_matrices=False,
        # It looks for a kernel for experts in 4 bits even where the configuration leaves them out.
        no_mixtures=("gptq",),
    ),
    "llama.cpp": RuntimeRules(
        "llama.cpp",
        ("gguf",),
        # Q4_0, Q4_1, Q8_0.
        _same(
            StorageFormat(4, BLOCK, symmetric=True),
            StorageFormat(4, BLOCK),
            StorageFormat(8, BLOCK, symmetric=True),
            _UNQUANTIZED,
        ),
        (
            LayerRule(
                f"groups in multiples of {BLOCK} that divide the inputs",
                lambda layer: (layer.group_size or layer.shape[1]) % BLOCK == 0 and _divides(layer),
            ),
        ),
        alike=stack_name,
        bits_per_weight=_block_bits,
    ),
}
