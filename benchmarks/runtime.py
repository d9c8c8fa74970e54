"""How fast quantized layers run on a GPU, beside the original in bfloat16, at the shapes of a 7B Llama with random weights.

    python -m benchmarks.runtime                                                  # about 3 minutes on an H200
    python -m benchmarks.runtime --hidden 256 --feed-forward 704 --blocks 2 --device cpu --bits 4    # to try it out

Weights are rounded to the nearest 4 or 3 bits, symmetric, in groups of 128; embeddings and head stay in bfloat16. For each model: prefill of
one prompt, decoding at batch 1, eager and compiled (torch.compile, static cache), and the bytes of its weights. `4 bits, tables` has scales for
four clusters of languages and uses the third. Before that, kernels are compared with plain products; after it, single products are timed. What
fails is printed where its result would be, and the rest goes on.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from laaciq.options import BITS
from laaciq.quantization.grid import QuantizedMatrix, extremes, grid_between, group, ungroup
from laaciq.quantization.layers import QuantizedLinear
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.products import KERNEL_BITS, PackedMatrix, Packing
from laaciq.quantization.stored import stored_tensors
from laaciq.speed.compiled import CompiledDecoding
from laaciq.speed.layers import weight_bytes

GROUP, TABLES, TABLE = 128, 4, 2
PROMPT, NEW_TOKENS, EAGER_TOKENS, ROUNDS = 128, 64, 16, 3
# The aims, for 4 bits over the original and for tables over static scales.
DECODING, PREFILL, WEIGHTS, TABLE_TIME = 1.5, 0.9, 0.32, 1.03
# Tiles of the product with one token: rows, and units per step.
TILES = ((2, 512), (4, 256), (4, 512), (8, 256), (8, 512), (16, 128))


@dataclasses.dataclass
class Row:
    """Tokens per second, and bytes."""

    name: str
    prefill: float | None = None
    decoding: float | None = None
    compiled: float | None = None
    weights: int | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--feed-forward", type=int, default=11008)
    parser.add_argument("--blocks", type=int, default=32)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--prompt-tokens", type=int, default=2048, help="tokens of the prefill")
    parser.add_argument("--bits", type=int, nargs="+", default=[4, 3], choices=BITS)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    began = time.perf_counter()

    def say(text: str) -> None:
        print(f"[{time.perf_counter() - began:5.0f} s] {text}", flush=True)

    if options.device == "cuda":
        check_kernels(say)
    rows = measure_models(options, say)
    print(f"\n{table(rows)}", flush=True)
    for line in verdicts(rows):
        print(line, flush=True)
    if options.device == "cuda":
        time_products(options, say)


def measure_models(options: argparse.Namespace, say: Callable[[str], None]) -> list[Row]:
    original = random_model(options)
    say(f"original: {sum(p.numel() for p in original.parameters()):,} parameters in bfloat16")
    rows = [measure("original", original, options, say)]
    for bits in options.bits:
        for tables in (0, TABLES) if bits == 4 else (0,):
            name = f"{bits} bits, tables" if tables else f"{bits} bits"
            with reported(name, say):
                model = quantized_copy(original, bits, tables)
                say(f"{name}: quantized")
                rows.append(measure(name, model, options, say))
                del model
    return rows


@torch.no_grad()
def measure(name: str, model: LlamaForCausalLM, options: argparse.Namespace, say: Callable[[str], None]) -> Row:
    row = Row(name)
    ids = torch.randint(options.vocabulary, (1, options.prompt_tokens), device=options.device)
    with reported(f"{name}, prefill", say):
        seconds = median_seconds(lambda: model(ids, use_cache=True, logits_to_keep=1), options.device)
        row.prefill = options.prompt_tokens / seconds
        say(f"{name}: prefill {row.prefill:,.0f} tokens/s")
    with reported(f"{name}, eager decoding", say):
        row.decoding = EAGER_TOKENS / median_seconds(lambda: decode(model, ids[:, :PROMPT]), options.device)
        say(f"{name}: eager decoding {row.decoding:,.1f} tokens/s")
    row.weights = weight_bytes(model)
    say(f"{name}: weights {row.weights / 1e9:.2f} GB")
    with reported(f"{name}, compiled decoding", say):
        decoding = CompiledDecoding(model, longest=PROMPT + NEW_TOKENS)
        # The first run compiles, the second records the CUDA graph.
        taken = [decoding.run(ids[:, :PROMPT], NEW_TOKENS)[1] for _ in range(3 + ROUNDS)][3:]
        row.compiled = (NEW_TOKENS - 1) / statistics.median(taken)
        say(f"{name}: compiled decoding {row.compiled:,.1f} tokens/s")
        del decoding
    torch._dynamo.reset()
    gc.collect()
    return row


def decode(model: LlamaForCausalLM, ids: torch.Tensor) -> None:
    """The prompt is short beside the tokens that follow."""
    cache = DynamicCache(config=model.config)
    tokens = ids[:, :1]
    for _ in range(EAGER_TOKENS):
        tokens = model(tokens, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)


def random_model(options: argparse.Namespace) -> LlamaForCausalLM:
    config = LlamaConfig(
        hidden_size=options.hidden,
        intermediate_size=options.feed_forward,
        num_hidden_layers=options.blocks,
        num_attention_heads=options.hidden // 128,
        num_key_value_heads=options.hidden // 128,
        vocab_size=options.vocabulary,
        max_position_embeddings=4096,
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(options.device):
        model = LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    return model


@torch.no_grad()
def quantized_copy(original: LlamaForCausalLM, bits: int, tables: int) -> LlamaForCausalLM:
    """It shares everything but the linear layers of the blocks with the original."""
    with torch.device("meta"):
        model = LlamaForCausalLM(original.config).eval()
    quantized = set()
    for name, layer in original.model.named_modules():
        if isinstance(layer, nn.Linear):
            shape = (layer.out_features, layer.in_features)
            plan = TensorPlan(name=name, shape=shape, bits=bits, group_size=GROUP, symmetric=True, tables=tables)
            model.model.set_submodule(name, quantized_layer(layer.weight, plan))
            quantized.add(f"model.{name}")
    for name, tensor in [*original.named_parameters(), *original.named_buffers()]:
        owner, _, leaf = name.rpartition(".")
        if owner not in quantized:
            module = model.get_submodule(owner)
            (module._parameters if isinstance(tensor, nn.Parameter) else module._buffers)[leaf] = tensor
    return model


def quantized_layer(weight: torch.Tensor, plan: TensorPlan) -> QuantizedLinear:
    matrix = nearest(weight, plan)
    with torch.device(weight.device):
        layer = QuantizedLinear(plan, bias=False)
    for name, part in stored_tensors(matrix, plan).items():
        layer.get_buffer(name).copy_(part)
    layer.dtype = weight.dtype
    layer.use(TABLE if plan.tables else None)
    return layer


def nearest(weight: torch.Tensor, plan: TensorPlan) -> QuantizedMatrix:
    groups = group(weight.detach().float(), plan, filler=0.0)
    grid = grid_between(*extremes(groups, plan), plan, torch.float16)
    codes = ungroup(grid.encode(groups, plan.bits), plan).to(torch.uint8)
    tables = torch.stack([grid.scales] * plan.tables) if plan.tables else None
    return QuantizedMatrix(codes, grid, tables=tables)


def table(rows: list[Row]) -> str:
    """Every model, with its ratio to the first."""
    lines = [
        "| model | prefill, tokens/s | decoding, eager | decoding, compiled | weights, GB |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        cells = [row.name]
        for field, unit in (("prefill", 1.0), ("decoding", 1.0), ("compiled", 1.0), ("weights", 1e9)):
            value, first = getattr(row, field), getattr(rows[0], field)
            ratio = f" ({value / first:.2f})" if row is not rows[0] and value and first else ""
            cells.append(f"{value / unit:,.{2 if unit > 1 else 1}f}{ratio}" if value else "failed")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def verdicts(rows: list[Row]) -> Iterator[str]:
    by_name = {row.name: row for row in rows}
    original, four, tables = (by_name.get(name, Row(name)) for name in ("original", "4 bits", "4 bits, tables"))
    yield _verdict("4 bits, compiled decoding over the original's", four.compiled, original.compiled, least=DECODING)
    yield _verdict("4 bits, prefill over the original's", four.prefill, original.prefill, least=PREFILL)
    yield _verdict("4 bits, weights over the original's", four.weights, original.weights, most=WEIGHTS)
    # Time per token is the inverse of speed.
    yield _verdict(
        "language tables, time per token over static scales", four.compiled, tables.compiled, most=TABLE_TIME
    )


def _verdict(what: str, value: float | None, over: float | None, *, least: float = 0.0, most: float = 1e9) -> str:
    aim = f"at least {least:g}" if least else f"at most {most:g}"
    if not value or not over:
        return f"{what}: not measured (aim: {aim})"
    ratio = value / over
    return f"{what}: {ratio:.3f} (aim: {aim}) {'reached' if least <= ratio <= most else 'MISSED'}"


def check_kernels(say: Callable[[str], None]) -> None:
    """Relative errors beside products with the dequantized weights in float64, at every bit width that kernels read."""
    from laaciq.quantization import triton_products, triton_weights

    for bits in KERNEL_BITS:
        with reported(f"kernels at {bits} bits", say):
            plan = TensorPlan(name="w", shape=(512, 1024), bits=bits, group_size=64, symmetric=bits % 2 == 0)
            matrix = nearest(torch.randn(plan.shape, device="cuda"), plan)
            packed, weights = _on_gpu(matrix, plan), matrix.dequantize(plan)
            exact = torch.equal(triton_weights.dequantize(packed, torch.float32), weights)
            errors = []
            for tokens in (1, 8, 32):
                x = torch.randn(tokens, 1024, device="cuda", dtype=torch.bfloat16)
                y, wanted = triton_products.product(x, packed).double(), x.double() @ weights.double().T
                errors.append(f"{tokens} tokens {((y - wanted).norm() / wanted.norm()).item():.1e}")
            say(f"kernels at {bits} bits: dequantized {'exactly' if exact else 'WRONGLY'}; errors: {', '.join(errors)}")


def time_products(options: argparse.Namespace, say: Callable[[str], None]) -> None:
    """One token by tile, and the parts of a prefill. Matrices take turns, so that none is in the cache."""
    hidden, feed_forward = options.hidden, options.feed_forward
    for shape in ((hidden, hidden), (feed_forward, hidden), (hidden, feed_forward)):
        weight = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        plain = [weight.clone() for _ in range(8)]
        x = torch.randn(1, shape[1], device="cuda", dtype=torch.bfloat16)
        prompt = torch.randn(options.prompt_tokens, shape[1], device="cuda", dtype=torch.bfloat16)
        with reported(f"{shape}, plain", say):
            one, many = (_microseconds([partial(nn.functional.linear, y, w) for w in plain]) for y in (x, prompt))
            say(f"{shape}: product in bfloat16, one token {one:.1f} µs, the prompt {many:.1f} µs")
        for bits in options.bits:
            plan = TensorPlan(name="w", shape=shape, bits=bits, group_size=GROUP, symmetric=True)
            _time_packed(weight, plan, x, say)


def _time_packed(weight: torch.Tensor, plan: TensorPlan, x: torch.Tensor, say: Callable[[str], None]) -> None:
    from laaciq.quantization import triton_products, triton_weights

    first = _on_gpu(nearest(weight, plan), plan)
    copies = [first._replace(codes=first.codes.clone()) for _ in range(16)]
    packing, what = first.packing, f"{plan.shape}, {plan.bits} bits"
    lanes = x.reshape(1, -1, packing.unit_codes).permute(2, 0, 1).contiguous()
    usual = triton_products.TILES[packing.unit_words]
    for tile in dict.fromkeys((usual, *TILES)):
        with reported(f"{what}, tile {tile}", say):
            triton_products.TILES[packing.unit_words] = tile
            taken = _microseconds([partial(triton_products.product, lanes, copy) for copy in copies])
            use = " (in use)" if tile == usual else ""
            say(f"{what}, tile {tile}{use}: {taken:.1f} µs, {first.codes.nbytes / taken / 1e3:,.0f} GB/s")
    triton_products.TILES[packing.unit_words] = usual
    with reported(f"{what}, dequantization", say):
        taken = _microseconds([partial(triton_weights.dequantize, copy, torch.bfloat16) for copy in copies])
        say(f"{what}: dequantization {taken:.1f} µs")


def _on_gpu(matrix: QuantizedMatrix, plan: TensorPlan) -> PackedMatrix:
    parts = {name: part.cuda() for name, part in stored_tensors(matrix, plan).items()}
    return PackedMatrix(parts["codes"], parts["scales"], parts.get("zeros"), Packing.of(plan), plan.shape[0])


def _microseconds(works: list[Callable[[], object]]) -> float:
    """Per call, in a CUDA graph of all calls."""
    for work in works:
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for work in works:
            work()
    return median_seconds(graph.replay, "cuda", rounds=10) / len(works) * 1e6


def median_seconds(work: Callable[[], object], device: str, rounds: int = ROUNDS) -> float:
    """After two warm-ups."""
    taken = []
    for _ in range(2 + rounds):
        began = _now(device)
        work()
        taken.append(_now(device) - began)
    return statistics.median(taken[2:])


def _now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


@contextmanager
def reported(what: str, say: Callable[[str], None]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        say(f"{what} FAILED: {type(error).__name__}: {error}")
        traceback.print_exc(limit=-6)


if __name__ == "__main__":
    main()
