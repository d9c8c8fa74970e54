"""Makes `data/`: tiny checkpoints written by the libraries themselves, each with the logits of that library's weights.

Run from the repository's root, one name after the other, each in an environment that has what it names:

    python -m tests.models.foreign.make_data base FOLDER                 # laaciq with its dev extra: the models to quantize
    python tests/models/foreign/make_data.py bitsandbytes FOLDER         # bitsandbytes 0.50.2, transformers 5.17.0
    python tests/models/foreign/make_data.py compressed-tensors FOLDER   # llmcompressor 0.14.0.1, compressed-tensors 0.19.0
    python tests/models/foreign/make_data.py awq FOLDER                  # auto-round 0.15.1
    python tests/models/foreign/make_data.py awq-weights FOLDER          # gptqmodel 7.6.0, transformers 5.22.2
    python tests/models/foreign/make_data.py gptq FOLDER                 # the same

Expected logits are those of the float32 model whose linear layers hold what the library's dequantization returns. The library's
forward pass may compute in 16 bits or round activations too: how far it is from these logits is printed, and nothing else.
"""

from __future__ import annotations

import copy
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from safetensors.torch import load_file, save_file

DATA = Path(__file__).parent / "data"
TOKENS = torch.arange(5, 45)[None]
# Two groups of inputs in every layer, and rows of whole blocks of 64: bitsandbytes' dequantization on a CPU is wrong for others.
# Few tokens and tied embeddings, because these would be most of the size.
SHAPE = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
GPT2 = {"vocab_size": 64, "n_embd": 64, "n_inner": 128, "n_layer": 1, "n_positions": 64}


def base(folder: Path) -> None:
    from tests.tiny import save_tiny

    save_tiny("llama", folder / "llama", dtype=torch.float16, **SHAPE)
    # With a token for every one of the tests' tokenizer: to be evaluated on text.
    save_tiny("llama", folder / "llama-text", dtype=torch.float16, **{**SHAPE, "vocab_size": 400})
    save_tiny("qwen2", folder / "qwen2", dtype=torch.float16, **SHAPE)
    save_tiny("gpt2", folder / "gpt2", dtype=torch.float16, **GPT2)


@torch.no_grad()
def write(name: str, saved: Path, original: Path, weights: dict[str, torch.Tensor], logits: torch.Tensor) -> None:
    """Keep what the library saved, and what its weights (outputs, inputs) by layer and its other tensors do in the original model."""
    from transformers import AutoModelForCausalLM
    from transformers.pytorch_utils import Conv1D

    model = AutoModelForCausalLM.from_pretrained(original, dtype=torch.float32).eval()
    for tensor, value in load_file(saved / "model.safetensors").items():
        if tensor.removesuffix(".weight") not in weights and tensor in model.state_dict():
            model.get_parameter(tensor).copy_(value)
    for layer, matrix in weights.items():
        module = model.get_submodule(layer)
        target = module.weight.t() if isinstance(module, Conv1D) else module.weight
        change = (target - matrix).norm() / target.norm()
        assert 0 < change < 0.9, f"{name}: {layer} is {change:.2f} from its original"
        target.copy_(matrix)
    expected = model(TOKENS).logits[0]
    far = (logits[0].float() - expected).abs().max() / expected.abs().max()
    print(f"{name}: {len(weights)} layers; the library's pass is within {far:.1e} of these logits")  # noqa: T201
    target_folder = DATA / name
    shutil.rmtree(target_folder, ignore_errors=True)
    target_folder.mkdir(parents=True)
    for kept in ("config.json", "model.safetensors"):
        shutil.copy(saved / kept, target_folder / kept)
    save_file({"logits": expected.to(torch.float16)}, target_folder / "expected.safetensors")


def quantized_layers(model: Any, is_quantized: Callable[[Any], bool]) -> dict[str, Any]:
    return {name: module for name, module in model.named_modules() if is_quantized(module)}


@torch.no_grad()
def bitsandbytes(folder: Path) -> None:
    import bitsandbytes as bnb
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    def four_bits(kind: str, double: bool) -> BitsAndBytesConfig:
        return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=double)

    for name, original, config in (
        ("bitsandbytes-nf4-double", "llama", four_bits("nf4", True)),
        ("bitsandbytes-nf4-gpt2", "gpt2", four_bits("nf4", False)),
        ("bitsandbytes-fp4", "qwen2", four_bits("fp4", False)),
        ("bitsandbytes-int8", "qwen2", BitsAndBytesConfig(load_in_8bit=True)),
    ):
        model = AutoModelForCausalLM.from_pretrained(
            folder / original, quantization_config=config, dtype=torch.float16, device_map="cpu"
        )
        # Before any pass: after one on a CPU, what is saved is corrupted.
        model.save_pretrained(folder / name)
        model = AutoModelForCausalLM.from_pretrained(folder / name, dtype=torch.float16, device_map="cpu").eval()
        weights = {}
        for layer, module in quantized_layers(model, lambda m: isinstance(m, bnb.nn.Linear4bit)).items():
            weights[layer] = bnb.functional.dequantize_4bit(module.weight.data, module.weight.quant_state).float()
        for layer, module in quantized_layers(model, lambda m: isinstance(m, bnb.nn.Linear8bitLt)).items():
            weights[layer] = bnb.functional.int8_vectorwise_dequant(module.weight.data, module.weight.SCB).float()
        write(name, folder / name, folder / original, weights, model(TOKENS).logits)


@torch.no_grad()
def compressed_tensors(folder: Path) -> None:
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from llmcompressor import oneshot
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from transformers import AutoModelForCausalLM, CompressedTensorsConfig

    def scheme(targets: list[str], activations: dict[str, Any] | None = None, **weights: Any) -> QuantizationScheme:
        return QuantizationScheme(
            targets=targets,
            weights=QuantizationArgs(**weights),
            input_activations=activations and QuantizationArgs(**activations),
        )

    tokens = {"num_bits": 8, "strategy": "token", "dynamic": True}
    mixed = {
        "affine": scheme(
            ["re:.*(q|k|gate)_proj$"], num_bits=4, symmetric=False, strategy="group", group_size=32, observer="minmax"
        ),
        "narrow": scheme(
            ["re:.*(v|up)_proj$"], num_bits=3, symmetric=True, strategy="group", group_size=32, observer="minmax"
        ),
        "channel": scheme(
            ["model.layers.0.self_attn.o_proj"], num_bits=8, symmetric=False, strategy="channel", observer="minmax"
        ),
    }
    whole = {"tensor": scheme(["Linear"], num_bits=8, symmetric=False, strategy="tensor", observer="minmax")}
    rows = {"rows": scheme(["Linear"], tokens, num_bits=8, symmetric=True, strategy="channel", observer="minmax")}
    blocks = {
        "blocks": scheme(
            ["Linear"],
            tokens | {"type": "float"},
            num_bits=8,
            type="float",
            strategy="block",
            block_structure=[64, 48],
            observer="minmax",
        )
    }
    for name, groups, form in (
        ("compressed-tensors-packed", mixed, None),
        ("compressed-tensors-naive", whole, "naive-quantized"),
        ("compressed-tensors-int", rows, None),
        ("compressed-tensors-float", blocks, None),
    ):
        model = AutoModelForCausalLM.from_pretrained(folder / "llama", dtype=torch.float16)
        oneshot(model=model, recipe=QuantizationModifier(config_groups=copy.deepcopy(groups), ignore=["lm_head"]))
        model.save_pretrained(folder / name, save_compressed=True, quantization_format=form)
        model = AutoModelForCausalLM.from_pretrained(
            folder / name, quantization_config=CompressedTensorsConfig(dequantize=True), dtype=torch.float16
        ).eval()
        layers = quantized_layers(model, lambda m: getattr(m, "quantization_scheme", None) is not None)
        weights = {layer: module.weight.float() for layer, module in layers.items()}
        write(name, folder / name, folder / "llama", weights, model(TOKENS).logits)


def awq(folder: Path) -> None:
    from auto_round import AutoRound
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder / "qwen2", dtype=torch.float16)
    tokenizer = AutoTokenizer.from_pretrained(folder / "qwen2")
    options = {"scheme": "W4A16", "sym": False, "group_size": 32, "iters": 0, "device_map": "cpu"}
    AutoRound(model, tokenizer, **options).quantize_and_save(str(folder / "awq"), format="auto_awq")


def awq_weights(folder: Path) -> None:
    from gptqmodel import BACKEND, GPTQModel
    from gptqmodel.nn_modules.qlinear.torch_awq import AwqTorchLinear
    from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm

    saved = next((folder / "awq").iterdir())  # AutoRound creates a folder inside the given one
    model = GPTQModel.load(str(saved), backend=BACKEND.AWQ_TORCH, device="cpu", dtype=torch.float16).model
    layers = quantized_layers(model, lambda m: isinstance(m, AwqTorchLinear))
    with torch.no_grad():
        weights = {
            name: dequantize_gemm(m.qweight, m.qzeros, m.scales, m.bits, m.group_size).t().float()
            for name, m in layers.items()
        }
        write("awq", saved, folder / "qwen2", weights, model(TOKENS).logits)


def gptq(folder: Path) -> None:
    from gptqmodel import BACKEND, GPTQModel, QuantizeConfig
    from gptqmodel.nn_modules.qlinear import BaseQuantLinear

    texts = torch.randint(64, (16, 60), generator=torch.Generator().manual_seed(0)).tolist()
    mixed = {
        r"+:.*\.(v|o)_proj$": {"bits": 8, "group_size": 32},
        r"+:.*\.up_proj$": {"bits": 3, "group_size": 32},
        r"-:.*\.down_proj$": {},
    }
    for name, original, settings in (
        ("gptq-v1-act-order", "qwen2", {"bits": 4, "group_size": 16, "desc_act": True, "sym": True, "dynamic": mixed}),
        ("gptq-v1-affine", "llama-text", {"bits": 4, "group_size": 32, "sym": False}),
        ("gptq-v2", "llama", {"bits": 2, "group_size": -1, "sym": False, "act_group_aware": False}),
        ("gptq-gpt2", "gpt2", {"bits": 4, "group_size": 32, "sym": True}),
    ):
        form = "gptq_v2" if name == "gptq-v2" else "gptq"
        config = QuantizeConfig(**{"desc_act": False, **settings}, format=form, offload_to_disk=False)
        model = GPTQModel.load(str(folder / original), config, device="cpu")
        model.quantize(texts, batch_size=4, backend=BACKEND.TORCH)
        model.save(str(folder / name))
        model = GPTQModel.load(str(folder / name), backend=BACKEND.TORCH, device="cpu", dtype=torch.float16)
        layers = quantized_layers(model.model, lambda m: isinstance(m, BaseQuantLinear))
        with torch.no_grad():
            weights = {layer: module.dequantize_weight().t().float() for layer, module in layers.items()}
            write(name, folder / name, folder / original, weights, model.model(TOKENS).logits)


if __name__ == "__main__":
    os.cpu_count = lambda: 8  # GPTQModel dies where there are two
    torch._dynamo.config.disable = True  # and compiles for minutes what runs once
    makers = {
        "base": base,
        "bitsandbytes": bitsandbytes,
        "compressed-tensors": compressed_tensors,
        "awq": awq,
        "awq-weights": awq_weights,
        "gptq": gptq,
    }
    makers[sys.argv[1]](Path(sys.argv[2]))
