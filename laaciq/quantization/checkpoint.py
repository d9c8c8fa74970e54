"""A quantized model on disk: a folder that transformers loads once `laaciq` is imported, and refuses to load without it.

Every quantized layer is stored as packed codes with scales, zero points, tables, kept weights and a low-rank correction, under the name of
the layer; every other tensor in 16 bits. config.json holds the plan. The tokenizer is in the same folder. The folder is complete or absent.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict
from safetensors.torch import save_file
from torch import nn

from laaciq.engine.files import write_text
from laaciq.engine.input_files import Refusal, is_file
from laaciq.engine.json_input import parse_section, read_record
from laaciq.engine.progress import Progress
from laaciq.errors import BrokenModel
from laaciq.models import Anatomy, LanguageModel, ModelFolder, stream_tensors
from laaciq.models.anatomy import is_linear
from laaciq.models.configuration import CONFIG, read_configuration
from laaciq.models.processors import processor_files
from laaciq.models.safetensors_files import tensor_headers
from laaciq.options import CHECKPOINT_METHOD
from laaciq.quantization.calibration import Calibration
from laaciq.quantization.checkpoint_checks import check_finite_values, check_headers, check_parts, layer_name
from laaciq.quantization.embeddings import QuantizedEmbedding
from laaciq.quantization.grid import QuantizedMatrix
from laaciq.quantization.kept import to_16bit
from laaciq.quantization.layers import QuantizedLinear
from laaciq.quantization.model import Quantized, quantize_model
from laaciq.quantization.plan import Plan, TensorPlan
from laaciq.quantization.stored import StoredMatrix, part_shapes
from laaciq.quantization.stored_layers import StoredLayers, packed

PLAN = "plan.json"
# Where config.json may name the file of the weights. transformers only warns about a quantization method that it does not know, and then
# initializes every quantized layer at random; but it raises an error if this is not a file name, and quotes it. `transformers_plugin`
# removes it.
WEIGHTS_FILE = "transformers_weights"
NEEDS_PACKAGE = (
    "this checkpoint is quantized by laaciq. Install that package ('pip install .' in a clone of it) and 'import laaciq' "
    "before loading the model"
)
SHARD_BYTES = 2 * 10**9
_QUANTIZE_AGAIN = Refusal(BrokenModel, "the checkpoint is damaged or of another version; quantize again")


def write_checkpoint(
    model: LanguageModel,
    plan: Plan,
    folder: Path,
    *,
    calibration: Calibration | None = None,
    quantized: Quantized | None = None,
    progress: Progress = Progress(),
) -> None:
    """Quantize all planned tensors, unless they are `quantized` already, and write them to a folder that the caller moves into its place."""
    brain_floats: list[str] = []

    def tensors() -> Iterator[tuple[str, torch.Tensor]]:
        planned = {tensor.name for tensor in plan.tensors if tensor.quantized}
        layers, tuned = quantized or quantize_model(model, plan, calibration, progress=progress)
        for tensor, parts in packed(layers):
            for part, stored in parts.items():
                name = f"{layer_name(tensor)}.{part}"
                if stored.dtype == torch.bfloat16:
                    brain_floats.append(name)
                yield name, stored
        for name, value in _other_tensors(model.module):
            if name not in planned:
                yield name, to_16bit(tuned.get(name, value)).cpu().contiguous()

    write_shards(tensors(), folder)
    _write_config(
        model, {"quant_method": CHECKPOINT_METHOD, "plan": plan.model_dump(), "brain_floats": brain_floats}, folder
    )
    model.tokenizer.save_pretrained(folder)
    for name, text in processor_files(model.folder).items():
        write_text(folder / name, text)
    write_text(folder / PLAN, plan.model_dump_json(indent=1))


def is_checkpoint(folder: Path) -> bool:
    """True if `write_checkpoint` wrote this folder."""
    return is_file(folder / PLAN) and is_file(folder / CONFIG)


def read_plan(folder: Path) -> Plan:
    """The plan of a checkpoint; config.json and plan.json must agree on it."""
    plan = read_record(folder / PLAN, Plan, _QUANTIZE_AGAIN, within=folder)
    if plan != read_section(folder).plan:
        raise _QUANTIZE_AGAIN.of(folder / PLAN, "is not the plan in config.json beside it")
    return plan


class Section(BaseModel):
    """`quantization_config` of config.json: the plan, and the names of tensors that are stored in bfloat16 instead of float16."""

    model_config = ConfigDict(extra="allow", frozen=True)

    quant_method: Literal["laaciq"]
    plan: Plan
    brain_floats: list[str]


def read_section(folder: Path) -> Section:
    return parse_quantization(read_configuration(folder).quantization_config, f"{folder / CONFIG}")


def parse_quantization(settings: object, name: str) -> Section:
    """Of a configuration that was read already; `name` says in errors where it comes from."""
    if settings is None:
        raise _QUANTIZE_AGAIN.of(name, "has no quantization_config")
    return parse_section(settings, Section, f"quantization_config of {name}", _QUANTIZE_AGAIN)


def replace_layers(module: nn.Module, plan: Plan, brain_floats: Iterable[str] = ()) -> None:
    """Replace every layer that the plan quantizes by an empty `QuantizedLinear` or `QuantizedEmbedding`."""
    in_brain = set(brain_floats)
    for tensor in plan.tensors:
        if not tensor.quantized:
            continue
        name = layer_name(tensor)
        parts = frozenset(part for part in part_shapes(tensor) if f"{name}.{part}" in in_brain)
        owner = _replace(module, name, tensor, brain_floats=parts)
        for other in tensor.used_by:
            if other != name:
                _replace(module, other, tensor, owner=owner)
    _untie(module, {f"{user}.weight" for tensor in plan.token_matrices if tensor.quantized for user in tensor.used_by})


def _replace(
    module: nn.Module,
    name: str,
    plan: TensorPlan,
    *,
    brain_floats: frozenset[str] = frozenset(),
    owner: StoredMatrix | None = None,
) -> StoredMatrix:
    try:
        layer = module.get_submodule(name)
    except AttributeError:
        raise BrokenModel(f"this plan is for another model: there is no layer {name}") from None
    looked_up = bool(plan.used_by) and isinstance(layer, nn.Embedding)
    if not (looked_up or is_linear(layer)) or sorted(layer.get_parameter("weight").shape) != sorted(plan.shape):
        kind = "an embedding or linear layer" if plan.used_by else "a linear layer"
        raise BrokenModel(f"this plan is for another model: {name} is not {kind} of shape {plan.shape}")
    replacement: StoredMatrix
    with torch.device(layer.get_parameter("weight").device):
        if isinstance(layer, nn.Embedding):
            replacement = QuantizedEmbedding(plan, layer, brain_floats=brain_floats, owner=owner)
        else:
            has_bias = getattr(layer, "bias", None) is not None
            replacement = QuantizedLinear(plan, bias=has_bias, brain_floats=brain_floats, owner=owner)
    module.set_submodule(name, replacement)
    return replacement


def _untie(module: nn.Module, names: set[str]) -> None:
    """Keep transformers from tying the named weights, which are not parameters any more. Modules that share a matrix share its codes
    already.
    """
    for path, part in module.named_modules():
        prefix = f"{path}." if path else ""
        for attribute in ("_tied_weights_keys", "all_tied_weights_keys"):
            if pairs := getattr(part, attribute, None):
                kept = {k: v for k, v in pairs.items() if not names & {f"{prefix}{k}", f"{prefix}{v}"}}
                setattr(part, attribute, kept)


def apply_checkpoint(model: LanguageModel, folder: Path, *, table: int | None = None) -> Plan:
    """Replace the weights of `model`, in place, by the dequantized weights of the checkpoint, with the shared scales or those of a table.
    Returns the plan.
    """
    plan = read_plan(folder)
    check_checkpoint(folder, plan, model.anatomy)
    targets = model.anatomy.matrices
    parameters = dict(model.module.named_parameters())
    layers, others = read_layers(folder, plan, model.device)
    with torch.no_grad():
        for tensor, matrix in layers:
            targets[tensor.name].copy_(matrix.dequantize(tensor, table))
        for name, stored in others.items():
            if name in parameters:
                parameters[name].copy_(stored)
    return plan


def read_layers(folder: Path, plan: Plan, device: torch.device) -> tuple[StoredLayers, dict[str, torch.Tensor]]:
    """The quantized layers of a checkpoint and its other tensors, by name. They stay in their files until they are used."""
    planned = {layer_name(tensor): tensor for tensor in plan.tensors if tensor.quantized}
    parts: dict[str, dict[str, torch.Tensor]] = {tensor.name: {} for tensor in planned.values()}
    others: dict[str, torch.Tensor] = {}
    for name, stored in stream_tensors(ModelFolder(str(folder), folder)):
        layer, _, part = name.rpartition(".")
        if layer in planned and part in part_shapes(planned[layer]):
            parts[planned[layer].name][part] = stored
        else:
            check_finite_values(stored, name)
            others[name] = stored
    for tensor in planned.values():
        if len(parts[tensor.name]) != len(part_shapes(tensor)):
            raise BrokenModel(f"{folder} is half-written: it lacks tensors of {layer_name(tensor)}; quantize again")
        check_parts(parts[tensor.name], tensor)
    return StoredLayers({tensor.name: tensor for tensor in planned.values()}, parts, device), others


def stream_checkpoint(folder: Path, plan: Plan) -> Iterator[tuple[str, QuantizedMatrix | torch.Tensor]]:
    """Every tensor of a checkpoint by its name in the model, one at a time; a quantized matrix comes with all its parts."""
    layers, others = read_layers(folder, plan, torch.device("cpu"))
    yield from ((tensor.name, matrix) for tensor, matrix in layers)
    yield from others.items()


def check_checkpoint(folder: Path, plan: Plan, anatomy: Anatomy) -> None:
    """Refuse a checkpoint whose files do not hold all of the model, by their headers alone."""
    headers = tensor_headers(ModelFolder(str(folder), folder))
    brain_floats = set(read_section(folder).brain_floats)
    shapes = {name: tuple(matrix.shape) for name, matrix in anatomy.matrices.items()}
    for tensor in plan.tensors:
        if shapes.get(tensor.name) != tensor.shape:
            raise BrokenModel(
                f"{folder} has a plan for another model: there is no {tensor.name} of shape {tensor.shape}; quantize again"
            )
    check_headers(headers, plan, brain_floats, [(part.name, part.shape) for part in anatomy.tensors])


def check_layers(module: nn.Module) -> None:
    """Like `check_parts`, for every quantized layer of a loaded model."""
    for layer in module.modules():
        if isinstance(layer, StoredMatrix):
            check_parts(layer.parts, layer.plan)


def _other_tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, tied ones once, and buffers that belong in a checkpoint."""
    for name, parameter in module.named_parameters():
        yield name, parameter.detach()
    for name, value in module.state_dict(keep_vars=True).items():
        if not isinstance(value, nn.Parameter):
            yield name, value


def write_shards(tensors: Iterable[tuple[str, torch.Tensor]], folder: Path) -> None:
    """Write shards of up to `SHARD_BYTES`, so that only one is in memory, and the index that transformers reads."""
    shards: list[list[str]] = []
    held: dict[str, torch.Tensor] = {}
    total = 0

    def write() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(held, folder / f"shard-{len(shards)}", metadata={"format": "pt"})
        shards.append(list(held))
        held.clear()

    for name, tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        if held and sum(t.numel() * t.element_size() for t in held.values()) + size > SHARD_BYTES:
            write()
        held[name] = tensor
        total += size
    write()
    if len(shards) == 1:
        (folder / "shard-0").rename(folder / "model.safetensors")
        return
    where: dict[str, str] = {}
    for number, names in enumerate(shards):
        final = f"model-{number + 1:05}-of-{len(shards):05}.safetensors"
        (folder / f"shard-{number}").rename(folder / final)
        where |= dict.fromkeys(names, final)
    index = {"metadata": {"total_size": total}, "weight_map": where}
    write_text(folder / "model.safetensors.index.json", json.dumps(index, indent=1))


def require_package(folder: Path) -> None:
    """Make transformers refuse the checkpoint, with a sentence that names this package, unless the package is imported."""
    path = folder / CONFIG
    config = json.loads(path.read_text(encoding="utf-8"))
    write_text(path, json.dumps(config | {WEIGHTS_FILE: NEEDS_PACKAGE}, indent=1))


def _write_config(model: LanguageModel, quantization: dict[str, Any], folder: Path) -> None:
    config = copy.deepcopy(model.module.config)
    config.quantization_config = quantization
    config.architectures = config.architectures or [type(model.module).__name__]
    config.save_pretrained(folder)
    written = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    # On a CPU the original was loaded in float32, whatever its stored type.
    configuration = model.folder.configuration
    stored = {} if configuration is None else configuration.model_extra or {}
    written["dtype"] = stored.get("dtype") or stored.get("torch_dtype") or "float32"
    write_text(folder / "config.json", json.dumps(written, indent=1))
    require_package(folder)
    if getattr(model.module, "generation_config", None) is not None:
        model.module.generation_config.save_pretrained(folder)
