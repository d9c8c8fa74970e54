"""Checkpoints as GGUF files, for llama.cpp and transformers: codes in blocks if a block type holds them, else 16 bits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from laaciq.errors import BadOption
from laaciq.exporting.carrying import beside_codes
from laaciq.exporting.contents import Coded, read_contents
from laaciq.exporting.gguf_blocks import Blocks, to_16bit_blocks, to_blocks
from laaciq.exporting.gguf_experts import UNLIKE, Stored, expert_count, joined, stack_experts
from laaciq.exporting.gguf_obstacles import obstacle
from laaciq.exporting.gguf_vocabulary import describe_vocabulary
from laaciq.models import ModelFolder, find_model
from laaciq.models.gguf_architecture import GgufArchitecture, tensor_names
from laaciq.models.gguf_file import gguf_file, import_gguf
from laaciq.models.no_remote_code import read_config, read_tokenizer
from laaciq.models.safetensors_files import read_tensors, tensor_headers
from laaciq.options import FULL_BITS

FILE = "model.gguf"
# Without it, runtimes use the embeddings.
_HEAD, _EMBEDDINGS = "lm_head.weight", "model.embed_tokens.weight"
# Architectures that transformers does not read from GGUF.
_NOT_IN_TRANSFORMERS = ("cohere2",)


@dataclass(frozen=True)
class GgufTensor:
    """One matrix: its block type, and bits per weight in the checkpoint and in the file, everything counted.

    `error` is the largest difference from the checkpoint's weights, relative to the largest weight; 0 is exact. It is measured on what the gguf
    library reads from the file. `folded` is the reason if blocks cannot hold the matrix, so that it is written in 16 bits.
    """

    name: str
    type: str
    weights: int
    bits_before: float
    bits_after: float
    error: float
    folded: str | None = None

    @property
    def exact(self) -> bool:
        return self.error == 0

    @property
    def widened(self) -> bool:
        """True if it is larger than in the checkpoint and not folded."""
        return self.folded is None and self.bits_after > self.bits_before


@dataclass(frozen=True)
class GgufExport:
    """What was written: the matrices in `tensors`; vectors are exact, in 32 bits. `for_transformers` is False if only llama.cpp computes
    what the file describes.
    """

    for_transformers: bool
    tensors: list[GgufTensor]

    @property
    def types(self) -> dict[str, int]:
        """Number of matrices by type."""
        return dict(Counter(tensor.type for tensor in self.tensors))

    @property
    def exact(self) -> bool:
        """True if every weight equals that of the checkpoint."""
        return all(tensor.exact for tensor in self.tensors)

    @property
    def bits_before(self) -> float:
        return self._mean([tensor.bits_before for tensor in self.tensors])

    @property
    def bits_after(self) -> float:
        return self._mean([tensor.bits_after for tensor in self.tensors])

    def _mean(self, bits: list[float]) -> float:
        """Mean over all weights."""
        counts = [tensor.weights for tensor in self.tensors]
        return sum(size * count for size, count in zip(bits, counts, strict=True)) / sum(counts)


def write_gguf(checkpoint: Path, out: Path) -> GgufExport:
    """Write `out`/model.gguf in one step. Language tables are left out: the file has the shared scales.

    Any other model is written in 16 bits, as input for llama.cpp's quantizer.
    """
    gguf = import_gguf()
    model = find_model(checkpoint)
    folder = model.path
    architecture = exported_architecture(read_config(model))
    tokenizer = read_tokenizer(model)
    translate = tensor_names(architecture.name, architecture.config.num_hidden_layers)
    carried = []
    with gguf_file(out / FILE, architecture.name) as writer:
        writer.add_type(gguf.GGUFType.MODEL)
        writer.add_name(folder.resolve().name)
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        architecture.describe(writer)
        describe_vocabulary(writer, tokenizer, architecture.config.vocab_size)
        if (factors := architecture.rotary_factors()) is not None:
            writer.add_tensor(f"{gguf.TENSOR_NAMES[gguf.MODEL_TENSOR.ROPE_FREQS]}.weight", factors.float().numpy())
        for name, parts in stack_experts(read_contents(folder), expert_count(architecture.config)):
            stored = next(iter(parts.values()))
            if name == _HEAD and architecture.config.tie_word_embeddings and _repeats_embeddings(model, stored):
                continue
            if isinstance(stored, torch.Tensor) and stored.ndim == 1:
                writer.add_tensor(translate(name), architecture.values(name, stored.float()).numpy())
                continue
            blocks, tensors = _carry(parts, architecture.row_order(name))
            data = blocks.data if len(parts) == 1 else blocks.data.reshape(len(parts), -1, blocks.data.shape[-1])
            writer.add_tensor(translate(name), data, raw_dtype=gguf.GGMLQuantizationType[blocks.type])
            carried += tensors
    for_transformers = factors is None and architecture.config.model_type not in _NOT_IN_TRANSFORMERS
    return GgufExport(for_transformers=for_transformers, tensors=carried)


def _repeats_embeddings(model: ModelFolder, head: torch.Tensor | Coded) -> bool:
    """A head that differs from the embeddings is not tied to them, whatever config.json says: transformers loads it so."""
    headers = tensor_headers(model)
    if isinstance(head, Coded) or _EMBEDDINGS not in headers:
        return False
    table = read_tensors({_EMBEDDINGS: headers[_EMBEDDINGS].file}, [_EMBEDDINGS])[_EMBEDDINGS]
    return torch.equal(head, table)


def _carry(parts: dict[str, Stored], rows: torch.Tensor | None) -> tuple[Blocks, list[GgufTensor]]:
    """A matrix, or those of all experts, with rows in GGUF's order, in the type that holds it."""
    gguf = import_gguf()
    matrices = [part.float() if isinstance(part, torch.Tensor) else part.weights() for part in parts.values()]
    weights = torch.cat(matrices)
    weights = weights if rows is None else weights[rows]
    whole = joined(list(parts.values()))
    coded = UNLIKE if whole is None else None if isinstance(whole, torch.Tensor) else from_codes(whole, rows)
    blocks = coded if isinstance(coded, Blocks) else to_16bit_blocks(weights.numpy())
    read = gguf.quants.dequantize(blocks.data, gguf.GGMLQuantizationType[blocks.type])
    error = np.abs(read - weights.numpy()).max() / max(weights.abs().max().item(), 1e-30)
    plans = {name: part.plan for name, part in parts.items() if isinstance(part, Coded)}
    return blocks, [
        GgufTensor(
            name=name,
            type=blocks.type,
            weights=matrix.numel(),
            bits_before=plans[name].stored_bits / plans[name].weights if name in plans else float(FULL_BITS),
            bits_after=8 * blocks.data.nbytes / weights.numel(),
            error=float(error),
            folded=coded if isinstance(coded, str) else None,
        )
        for name, matrix in zip(parts, matrices, strict=True)
    ]


def from_codes(stored: Coded, rows: torch.Tensor | None) -> Blocks | str:
    """Blocks, or the reason why no block type fits."""
    if (addition := beside_codes(stored.plan)) is not None:
        return addition
    return to_blocks((stored if rows is None else stored.reordered(rows)).quantized, stored.plan)


def exported_architecture(config: Any) -> GgufArchitecture:
    """The GGUF architecture; an error if a GGUF file cannot describe the model completely."""
    if reason := obstacle(config):
        raise BadOption(f"this model cannot be exported to GGUF: {reason}; give another --format")
    return GgufArchitecture(config)
