"""The export formats: what each can hold, and how it is written."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from laaciq.engine.files import write_text
from laaciq.exporting import gptq, pack_quantized
from laaciq.exporting.carrying import CarriedMatrix, Layout, beside_codes, carry, fit
from laaciq.exporting.gguf_format import GgufFormat
from laaciq.exporting.hub_names import hub_names
from laaciq.exporting.results import Misfit, Rule, Written
from laaciq.exporting.runtime_rules import check_rules
from laaciq.exporting.source import CheckpointSource
from laaciq.models.loading import Kind
from laaciq.planning.runtimes import RUNTIMES, StoredLayer, is_expert
from laaciq.quantization.checkpoint import PLAN, stream_checkpoint, write_shards
from laaciq.quantization.checkpoint_checks import layer_name
from laaciq.quantization.grid import QuantizedMatrix
from laaciq.quantization.kept import to_16bit
from laaciq.quantization.plan import TensorPlan

# Tokenizer, chat template, generation: data, never code.
_DATA = (".json", ".txt", ".model", ".jinja")
_REPLACED = ("config.json", PLAN, "model.safetensors.index.json")


class ExportFormat(Protocol):
    @property
    def name(self) -> str: ...

    def misfits(self, source: CheckpointSource) -> list[Misfit]:
        """The tensors that the format cannot hold as they are."""

    def rules(self, source: CheckpointSource, misfits: list[Misfit]) -> dict[str, list[Rule]]:
        """The rules of every runtime that reads the format and does not load all that it holds, checked on what would be written."""

    def write(self, source: CheckpointSource, misfits: list[Misfit], folder: Path) -> Written:
        """Write the checkpoint with its misfits folded into an empty folder."""


@dataclass(frozen=True)
class PackedFormat:
    """A folder for transformers: every matrix in the parts of another library, and its settings in config.json.

    Outputs and inputs must be multiples of `multiple`. `transposed`: GPT-2's Conv1D are supported. `brain_scales`: scales may be bfloat16.
    """

    name: str
    bits: tuple[int, ...]
    groups: tuple[int, ...] | None
    multiple: int
    transposed: bool
    brain_scales: bool
    kinds: tuple[Kind, ...]
    pack: Callable[[CarriedMatrix, Mapping[str, Any]], dict[str, torch.Tensor]]
    configure: Callable[[Mapping[str, Layout], Sequence[str]], dict[str, Any]]
    notes: Callable[[Mapping[str, Layout]], list[str]]

    def misfits(self, source: CheckpointSource) -> list[Misfit]:
        quantized = [plan for plan in source.plan.tensors if plan.quantized]
        misfits = [Misfit.of(plan, self._obstacle(plan, source)) for plan in quantized]
        return [misfit for misfit in misfits if misfit is not None]

    def _obstacle(self, plan: TensorPlan, source: CheckpointSource) -> str | None:
        """Why the format cannot hold the codes; None if it can."""
        beside = "embeddings and heads stay in 16 bits" if plan.used_by else beside_codes(plan)
        if beside is not None:
            return beside
        if source.kind not in self.kinds:
            return f"it is in a model that is {source.kind}, and only {', '.join(self.kinds)} ones are loaded"
        if source.linears[plan.name].transposed and not self.transposed:
            return "it is a Conv1D, and only linear layers are quantized"
        if any(size % self.multiple for size in plan.shape):
            return f"its shape {plan.shape[0]}×{plan.shape[1]} is not a multiple of {self.multiple}"
        if not self.brain_scales and f"{layer_name(plan)}.scales" in source.brain_floats:
            return "its scales are beyond float16"
        fits = self._fit(plan) is not None
        return None if fits else f"no group size divides its groups of {plan.group_inputs} and rows of {plan.shape[1]}"

    def _fit(self, plan: TensorPlan) -> Layout | None:
        return fit(plan, bits=self.bits, groups=self.groups)

    def rules(self, source: CheckpointSource, misfits: list[Misfit]) -> dict[str, list[Rule]]:
        layouts = self._layouts(source, misfits)
        renamed = hub_names(source.config.get("model_type"))
        layers = {
            renamed(_layer(name)): StoredLayer(
                source.plan[name].shape, layout.bits, layout.group_size, layout.symmetric, is_expert(name)
            )
            for name, layout in layouts.items()
        }
        left = self._left(source, layouts)
        return {
            name: check_rules(runtime, self.name, layers, left)
            for name, runtime in RUNTIMES.items()
            if self.name in runtime.reads
        }

    def _layouts(self, source: CheckpointSource, misfits: list[Misfit]) -> dict[str, Layout]:
        """The layouts of all tensors whose codes are written."""
        in_full = {misfit.tensor for misfit in misfits if misfit.folded_to == "16 bits"}
        carried = {plan.name: plan for plan in source.plan.tensors if plan.quantized and plan.name not in in_full}
        return {name: layout for name, plan in carried.items() if (layout := self._fit(plan)) is not None}

    def _left(self, source: CheckpointSource, layouts: Mapping[str, Layout]) -> list[str]:
        """Layers that stay in 16 bits."""
        renamed = hub_names(source.config.get("model_type"))
        left = [renamed(_layer(name)) for name in source.linears if name not in layouts]
        return left + list(map(renamed, source.left_alone))

    def write(self, source: CheckpointSource, misfits: list[Misfit], folder: Path) -> Written:
        layouts = self._layouts(source, misfits)
        renamed = hub_names(source.config.get("model_type"))
        by_layer = {renamed(_layer(name)): layout for name, layout in layouts.items()}
        config = self.configure(by_layer, self._left(source, layouts))
        write_shards(self._tensors(source, layouts, config), folder)
        _write_config(source, config, folder)
        return Written(
            layouts=dict(Counter(layout.words for layout in layouts.values())),
            widened=sum(_is_wider(layout, source.plan[name]) for name, layout in layouts.items()),
            notes=self.notes(by_layer) + _notes(source),
        )

    def _tensors(
        self, source: CheckpointSource, layouts: Mapping[str, Layout], config: Mapping[str, Any]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        renamed = hub_names(source.config.get("model_type"))
        for name, stored in stream_checkpoint(source.folder, source.plan):
            if not isinstance(stored, QuantizedMatrix):
                yield renamed(name), stored
            elif name in layouts:
                matrix = carry(stored, source.plan[name], layouts[name])
                for part, tensor in self.pack(matrix, config).items():
                    yield f"{renamed(_layer(name))}.{part}", tensor
            else:
                yield renamed(name), folded(stored, source, name)


def _layer(name: str) -> str:
    """The name of the layer whose weight has this name."""
    return name.removesuffix(".weight")


def folded(matrix: QuantizedMatrix, source: CheckpointSource, name: str) -> torch.Tensor:
    """The weights in 16 bits, in the layout of the model's parameter."""
    weights = to_16bit(matrix.dequantize(source.plan[name]))
    transposed = name in source.linears and source.linears[name].transposed
    return (weights.t() if transposed else weights).contiguous()


def _is_wider(layout: Layout, plan: TensorPlan) -> bool:
    same_groups = plan.group_size != "tensor" and (layout.group_size or plan.shape[1]) == plan.group_inputs
    return layout.bits > plan.bits or not same_groups


def _write_config(source: CheckpointSource, quantization: dict[str, Any], folder: Path) -> None:
    config = source.config | {"quantization_config": quantization}
    write_text(folder / "config.json", json.dumps(config, indent=1))
    for path in source.folder.iterdir():
        if path.is_file() and path.suffix in _DATA and path.name not in _REPLACED:
            shutil.copyfile(path, folder / path.name)


def _notes(source: CheckpointSource) -> list[str]:
    """Notes for the user, for example that readers compute scales in the model's type."""
    scales = {f"{layer_name(plan)}.scales" for plan in source.plan.tensors if plan.quantized}
    if source.config.get("dtype") == "bfloat16" and scales - source.brain_floats:
        return ["Scales are float16; the type of this model, bfloat16, rounds them: load it in float16 or float32."]
    return []


COMPRESSED_TENSORS = PackedFormat(
    name="compressed-tensors",
    bits=pack_quantized.BITS,
    groups=None,
    multiple=1,
    transposed=False,
    brain_scales=True,
    kinds=("causal", "masked", "encoder-decoder"),
    pack=pack_quantized.pack_parts,
    configure=pack_quantized.quantization_config,
    notes=pack_quantized.notes,
)
GPTQ = PackedFormat(
    name="gptq",
    bits=gptq.BITS,
    groups=gptq.GROUPS,
    multiple=gptq.MULTIPLE,
    transposed=True,
    brain_scales=False,
    kinds=("causal",),
    pack=gptq.pack_parts,
    configure=gptq.quantization_config,
    notes=gptq.notes,
)
FORMATS: dict[str, ExportFormat] = {known.name: known for known in (COMPRESSED_TENSORS, GPTQ, GgufFormat())}
