"""Whether each found's weights compute what its library's own model does.

    .venv-peers/bin/python -m laaciq.backends --check [--sequences 128] [--device cuda]

On the reference model and a random Gemma 3 of two blocks, some of whose inputs no group divides. A line for each: model, name, settings,
bits a weight, max |Δ logit| / max |logit|, seconds (for quantizing and comparing). Ends with status 1 where a difference is above 10⁻³.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import chain

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Gemma3ForCausalLM, Gemma3TextConfig, PreTrainedModel

from laaciq import read_split, reference
from laaciq.backends import bitsandbytes, hqq, llmcompressor
from laaciq.backends.contract import Quantized

TOLERANCE = 1e-3
CHECKS: dict[str, Callable[..., tuple[Quantized, float]]] = {
    "NF4, double quantization": partial(bitsandbytes.check, double=True),
    "NF4": partial(bitsandbytes.check, double=False),
    "HQQ, 4 bits": partial(hqq.check, bits=4),
    "HQQ, 3 bits": partial(hqq.check, bits=3),
    "GPTQ, 4 bits": partial(llmcompressor.check, method="GPTQ", bits=4),
    "GPTQ, 3 bits": partial(llmcompressor.check, method="GPTQ", bits=3),
    "AWQ, 4 bits": partial(llmcompressor.check, method="AWQ", bits=4),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", required=True)
    parser.add_argument("--sequences", type=int, default=16, help="calibration passages, the languages in turn")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(reference.path())
    calibration = read_split("builtin").calibration
    in_turn = chain.from_iterable(zip(*(calibration.by_language[c].texts for c in calibration.languages), strict=False))
    texts = list(in_turn)[: options.sequences]
    models: dict[str, PreTrainedModel] = {
        "reference": AutoModelForCausalLM.from_pretrained(reference.path(), dtype=torch.bfloat16),
        "Gemma 3": _gemma(len(tokenizer)),
    }
    worst = 0.0
    for model_name, model in models.items():
        for name, check in CHECKS.items():
            began = time.perf_counter()
            try:
                with warnings.catch_warnings(record=True) as caught:
                    found, difference = check(model, tokenizer, texts, device=options.device)
            except ImportError as error:
                print(f"{model_name}: {name}: not checked: {error}")
                continue
            seconds = time.perf_counter() - began
            worst = max(worst, difference)
            print(
                f"{model_name}: {found.name}: {found.settings}; {len(found.left_alone)} matrices left alone; "
                f"{found.bits_per_weight:.3f} bits a weight; {difference:.1e}; {seconds:.1f} s",
                flush=True,
            )
            for warning in caught:
                print(f"    {warning.message}")
    sys.exit(worst > TOLERANCE)


def _gemma(vocabulary: int) -> PreTrainedModel:
    """Norms with weights other than the initial ones, because AWQ scales them; 320 inputs that 128 does not divide."""
    config = Gemma3TextConfig(
        vocab_size=vocabulary, hidden_size=256, intermediate_size=320, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, head_dim=64, sliding_window=64, max_position_embeddings=1024,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Gemma3ForCausalLM(config)
        for name, parameter in model.named_parameters():
            if "norm" in name:
                torch.nn.init.normal_(parameter, std=0.2)
    return model.to(torch.bfloat16)


if __name__ == "__main__":
    main()
