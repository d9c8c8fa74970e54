"""Llama shapes by size, and models of these shapes with random weights on disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig

from laaciq import reference
from laaciq.scoring.operations import ModelShape

VOCABULARY = 32_000
POSITIONS = 2048
SHARD_BYTES = 4 * 2**30
# As transformers initialises Llama.
_DEVIATION = 0.02
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True)
class Shape:
    """A Llama with untied embeddings. `key_values` is the number of key-value heads. Not `gated`, a block has one matrix less, as in BLOOM."""

    name: str
    hidden: int
    feed_forward: int
    blocks: int
    heads: int
    key_values: int
    gated: bool = True

    @property
    def layers(self) -> dict[str, tuple[int, int]]:
        """Outputs and inputs of the linear layers of a block."""
        shared = self.hidden // self.heads * self.key_values
        layers = {
            "self_attn.q_proj": (self.hidden, self.hidden),
            "self_attn.k_proj": (shared, self.hidden),
            "self_attn.v_proj": (shared, self.hidden),
            "self_attn.o_proj": (self.hidden, self.hidden),
            "mlp.gate_proj": (self.feed_forward, self.hidden),
            "mlp.up_proj": (self.feed_forward, self.hidden),
            "mlp.down_proj": (self.hidden, self.feed_forward),
        }
        return {name: shape for name, shape in layers.items() if self.gated or name != "mlp.gate_proj"}

    @property
    def parameters(self) -> int:
        return sum(prod(shape) for _, shape in self.tensors())

    @property
    def bytes(self) -> int:
        """In 16 bits."""
        return 2 * self.parameters

    @property
    def factorized(self) -> float:
        """Σ n³ over the layers' inputs, each of n numbers: layers that read the same input share it."""
        return self.blocks * (3.0 * self.hidden**3 + self.feed_forward**3)

    @property
    def rounded(self) -> float:
        """Σ outputs · inputs² over the layers: the products of second-order rounding."""
        return self.blocks * float(sum(outputs * inputs**2 for outputs, inputs in self.layers.values()))

    def costed(self) -> ModelShape:
        """As laaciq estimates its cost."""
        widths = (self.hidden, self.hidden, self.hidden, self.feed_forward)
        return ModelShape(
            kind="causal",
            matrices=(tuple(self.layers.values()),) * self.blocks,
            inputs=(widths,) * self.blocks,
            shares=((1.0,) * len(self.layers),) * self.blocks,
            input_shares=((1.0,) * len(widths),) * self.blocks,
            attention=self.hidden,
            width=self.hidden,
            vocabulary=VOCABULARY,
            parameters=self.parameters,
        )

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes in the order of the blocks."""
        yield "model.embed_tokens.weight", (VOCABULARY, self.hidden)
        for block in range(self.blocks):
            for layer, shape in self.layers.items():
                yield f"model.layers.{block}.{layer}.weight", shape
            for norm in ("input_layernorm", "post_attention_layernorm"):
                yield f"model.layers.{block}.{norm}.weight", (self.hidden,)
        yield "model.norm.weight", (self.hidden,)
        yield "lm_head.weight", (VOCABULARY, self.hidden)

    def write(self, folder: Path) -> None:
        """A checkpoint in bfloat16 with the tokenizer of the reference model; made on the GPU if there is one."""
        folder.mkdir(parents=True)
        self.config().save_pretrained(folder)
        for name in _TOKENIZER:
            shutil.copy(reference.path() / name, folder)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        random = torch.Generator(device).manual_seed(0)
        shards = list(_shards(self.tensors()))
        files: dict[str, str] = {}
        for number, shard in enumerate(shards, start=1):
            file = f"model-{number:05}-of-{len(shards):05}.safetensors"
            tensors = {name: _random_tensor(shape, random) for name, shape in shard.items()}
            save_file(tensors, folder / file, metadata={"format": "pt"})
            files |= dict.fromkeys(shard, file)
        index = {"metadata": {"total_size": self.bytes}, "weight_map": files}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")

    def config(self) -> LlamaConfig:
        known = json.loads((reference.path() / "config.json").read_text(encoding="utf-8"))
        return LlamaConfig(
            architectures=["LlamaForCausalLM"],
            dtype="bfloat16",
            hidden_size=self.hidden,
            intermediate_size=self.feed_forward,
            num_hidden_layers=self.blocks,
            num_attention_heads=self.heads,
            num_key_value_heads=self.key_values,
            vocab_size=VOCABULARY,
            max_position_embeddings=POSITIONS,
            tie_word_embeddings=False,
            **{name: known[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")},
        )


MEASURED = {
    shape.name: shape
    for shape in (
        Shape("0.3B", 1024, 2816, 24, heads=16, key_values=16),
        Shape("1.1B", 2048, 5632, 22, heads=32, key_values=4),
        Shape("3B", 3072, 8192, 26, heads=24, key_values=24),
        Shape("7B", 4096, 11008, 32, heads=32, key_values=32),
        Shape("13B", 5120, 13824, 40, heads=40, key_values=40),
    )
}
PREDICTED = (
    Shape("70B", 8192, 28672, 80, heads=64, key_values=8),
    Shape("176B", 14336, 57344, 70, heads=112, key_values=112, gated=False),
)


def find_shape(name: str) -> Shape:
    """One of the sizes above, or hidden x feed-forward x blocks, such as 128x256x2."""
    if name in MEASURED:
        return MEASURED[name]
    hidden, feed_forward, blocks = map(int, name.split("x"))
    heads = max(1, hidden // 64)
    return Shape(name, hidden, feed_forward, blocks, heads=heads, key_values=heads)


def _shards(tensors: Iterator[tuple[str, tuple[int, ...]]]) -> Iterator[dict[str, tuple[int, ...]]]:
    shard: dict[str, tuple[int, ...]] = {}
    for name, shape in tensors:
        if shard and 2 * (sum(map(prod, shard.values())) + prod(shape)) > SHARD_BYTES:
            yield shard
            shard = {}
        shard[name] = shape
    yield shard


def _random_tensor(shape: tuple[int, ...], random: torch.Generator) -> torch.Tensor:
    if len(shape) == 1:
        return torch.ones(shape, dtype=torch.bfloat16)
    made = torch.randn(shape, generator=random, device=random.device, dtype=torch.bfloat16)
    return made.mul_(_DEVIATION).cpu()
