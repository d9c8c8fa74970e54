"""Train the embedded reference model: a small multilingual Llama whose languages differ in resources.

    python recipes/train_reference.py --texts FOLDER --out FOLDER

`FOLDER` holds `<code>.txt` or `<code>.txt.xz`, one passage per line. Texts and training options are in
`recipes/reference.toml`; `--set training.seed=1` (any key of that file) makes a variant. The out folder becomes a standard
transformers checkpoint with `training.json` (options, log), `languages.json` (exposure and bits per byte) and `exposure.json`.
After an interruption the same command resumes from the last saved step. Needs torch, transformers, tokenizers and numpy only.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
import tomllib
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from attention import use_attention
from reference_data import (
    BOS,
    EOS,
    PAD,
    Documents,
    Language,
    LanguageText,
    byte_count,
    encode,
    fill_rows,
    passes_by_language,
    read_language,
    read_passages,
    rows_of,
    train_tokenizer,
    training_order,
)
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SAVE_EVERY_S = 60


def parse() -> tuple[argparse.Namespace, dict]:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", type=Path, required=True, help="folder of <code>.txt or <code>.txt.xz")
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint")
    parser.add_argument("--recipe", type=Path, default=Path(__file__).with_name("reference.toml"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for example training.seed=1")
    parser.add_argument("--heldout", type=Path, help="folder of <code>.txt; bits per byte on the second half of each")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    recipe = tomllib.loads(arguments.recipe.read_text())
    for assignment in arguments.set:
        key, _, value = assignment.partition("=")
        section, _, name = key.partition(".")
        if name not in recipe.get(section, {}):
            raise SystemExit(f"unknown key {key!r}: {arguments.recipe} has no such key")
        kind = type(recipe[section][name])
        recipe[section][name] = value if kind is str else kind(float(value))
    return arguments, recipe


def build_model(options: dict, tokenizer: PreTrainedTokenizerFast, *, longest: int, seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=options["vocabulary"],
        hidden_size=options["width"],
        intermediate_size=options["feed_forward"],
        num_hidden_layers=options["blocks"],
        num_attention_heads=options["heads"],
        num_key_value_heads=options["key_value_heads"],
        max_position_embeddings=longest,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    use_attention(model, options["attention"])
    return model


def balance_penalty(hidden_states: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """L·Σ ā_l² − 1, the squared coefficient of variation of the blocks' activation norms a_l = E‖h_l‖; 0 when even."""
    norms = torch.stack([state.float().norm(dim=-1).mean() for state in hidden_states[1:]])
    fractions = norms / norms.sum()
    return len(norms) * fractions.square().sum() - 1


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Linear warm-up over 3 % of the steps, then linear decay to zero."""
    warm_up = max(1, int(0.03 * steps))
    return peak * min((step + 1) / warm_up, (steps - step) / max(1, steps - warm_up))


def optimiser_of(model: LlamaForCausalLM, options: dict) -> torch.optim.AdamW:
    """Weight decay on matrices, not on the gains of norms."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    gains = [p for p in model.parameters() if p.dim() == 1]
    groups = [
        {"params": matrices, "weight_decay": options["weight_decay"]},
        {"params": gains, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=options["learning_rate"], betas=(0.9, 0.95), fused=True)


def train(
    model: LlamaForCausalLM, documents: Documents, passes: np.ndarray, options: dict, *, pad: int, state: Path
) -> tuple[list, np.ndarray]:
    """Train in place; returns the log, one entry every 50 steps, and the tokens trained on by language."""
    row_tokens, per_step = options["row_tokens"], options["rows_per_step"]
    order = training_order(documents, passes, seed=options["seed"])
    starts = rows_of(order, documents, row_tokens=row_tokens)
    steps = max(1, (len(starts) - 1) // per_step)
    device = next(model.parameters()).device
    optimiser = optimiser_of(model, options)
    log: list[dict[str, float]] = []
    first, spent = 0, 0.0
    if state.exists():
        saved = torch.load(state, weights_only=True, map_location=device)
        model.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
        first, log, spent = saved["step"], saved["log"], saved["seconds"]
    accelerated = device.type == "cuda"
    precision = torch.autocast("cuda", torch.bfloat16) if accelerated else nullcontext()
    # Hidden states are captured by hooks, which not every version of torch and transformers compiles.
    forward = torch.compile(model) if accelerated and options["balance_penalty"] == 0 else model
    began = saved_at = time.monotonic()
    for step in range(first, steps):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(step, steps, options["learning_rate"])
        rows = range(step * per_step, (step + 1) * per_step)
        batch = fill_rows(rows, starts, order, documents, row_tokens=row_tokens, pad=pad)
        ids = torch.from_numpy(batch).to(device, non_blocking=True)
        labels = ids.masked_fill(ids == pad, -100)
        with precision:
            output = forward(input_ids=ids, labels=labels, output_hidden_states=options["balance_penalty"] > 0)
            loss = output.loss
            if options["balance_penalty"] > 0:
                loss = loss + options["balance_penalty"] * balance_penalty(output.hidden_states)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        if step % 50 == 0 or step == steps - 1:
            seconds = spent + time.monotonic() - began
            log.append({"step": step, "loss": round(output.loss.item(), 4), "seconds": round(seconds, 1)})
            print(f"step {step + 1} of {steps}  loss {log[-1]['loss']:.3f}  {seconds:.0f} s", flush=True)
        if time.monotonic() - saved_at > SAVE_EVERY_S:
            saved_at = time.monotonic()
            keep = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "step": step + 1, "log": log}
            torch.save(keep | {"seconds": spent + saved_at - began}, state.with_suffix(".part"))
            os.replace(state.with_suffix(".part"), state)
    shown = order[: starts[steps * per_step]]
    exposure = np.bincount(documents.language[shown], weights=documents.lengths[shown], minlength=len(passes))
    return log, exposure


@torch.no_grad()
def bits_per_byte(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, passages: list[str]) -> float:
    """Bits of the text's tokens after `<s>`, over the text's bytes."""
    device = next(model.parameters()).device
    nats = 0.0
    passages = sorted(passages, key=len)
    for begin in range(0, len(passages), 32):
        batch = tokenizer(passages[begin : begin + 32], return_tensors="pt", padding=True).to(device)
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)[:, 1:]
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1].float()
        nats += torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum").item()
    return nats / math.log(2) / byte_count(passages)


def language_table(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    languages: Sequence[Language],
    documents: Documents,
    exposure: np.ndarray,
    heldout: Path | None,
) -> list[dict]:
    rows = []
    tokens = np.bincount(documents.language, weights=documents.lengths)
    for index, language in enumerate(languages):
        row = {
            "language": language.code,
            "available_bytes": language.available_bytes,
            "training_bytes": language.training_bytes,
            "training_tokens": int(tokens[index]),
            "exposure_tokens": int(exposure[index]),
            "passes": round(exposure[index] / tokens[index], 2),
            "held_back_bits_per_byte": round(bits_per_byte(model, tokenizer, language.held_back), 4),
        }
        if heldout is not None:
            passages = read_passages(heldout, language.code)
            other = passages[len(passages) // 2 :]
            row["other_source_bits_per_byte"] = round(bits_per_byte(model, tokenizer, other), 4)
        rows.append(row)
    return rows


def read_languages(texts: Path, recipe: dict) -> list[LanguageText]:
    languages = [read_language(texts, code, most_bytes=most) for code, most in recipe["texts"].items()]
    print(f"{len(languages)} languages, {sum(x.training_bytes for x in languages) / 1e6:.1f} MB of text", flush=True)
    return languages


def train_and_save(
    recipe: dict,
    languages: Sequence[Language],
    tokenizer: PreTrainedTokenizerFast,
    documents: Documents,
    *,
    out: Path,
    device: torch.device,
    heldout: Path | None = None,
) -> list[dict]:
    """Train, write the checkpoint with `training.json` and `languages.json`, and return what the latter holds."""
    options = recipe["training"]
    out.mkdir(parents=True, exist_ok=True)
    passes = passes_by_language(documents, passes=options["passes"], mix_exponent=options["mix_exponent"])
    model = build_model(recipe["model"], tokenizer, longest=options["row_tokens"], seed=options["seed"])
    torch.nn.Module.to(model, device)
    state = out / "state.pt"
    log, exposure = train(model, documents, passes, options, pad=tokenizer.pad_token_id, state=state)

    tokenizer.save_pretrained(out)
    torch.nn.Module.to(model, torch.bfloat16)
    model.save_pretrained(out, max_shard_size="12MB")
    # Measured as released: rounded to 16 bits, tokenizer and weights read back from the folder, computed in float32.
    released = LlamaForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
    use_attention(released, recipe["model"]["attention"])
    torch.nn.Module.to(released, device)
    reread = PreTrainedTokenizerFast.from_pretrained(out)
    table = language_table(released, reread, languages, documents, exposure, heldout)
    training = {
        "recipe": recipe,
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens_seen": int(exposure.sum()),
        "machine": torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
        "torch": torch.__version__,
        "log": log,
    }
    (out / "training.json").write_text(json.dumps(training, indent=1) + "\n")
    seen = {row["language"]: row["exposure_tokens"] for row in table}
    (out / "exposure.json").write_text(json.dumps(seen) + "\n")
    (out / "languages.json").write_text(json.dumps(table, indent=1) + "\n")
    state.unlink(missing_ok=True)
    return table


def main() -> None:
    arguments, recipe = parse()
    languages = read_languages(arguments.texts, recipe)
    raw = train_tokenizer(languages, recipe["model"]["vocabulary"])
    recipe["model"]["vocabulary"] = raw.get_vocab_size()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token=BOS, eos_token=EOS, pad_token=PAD, padding_side="right"
    )
    documents = encode(languages, raw, longest=recipe["training"]["row_tokens"])
    print(f"{len(documents.tokens) / 1e6:.1f} M tokens, vocabulary {raw.get_vocab_size()}", flush=True)
    table = train_and_save(
        recipe, languages, tokenizer, documents,
        out=arguments.out, device=torch.device(arguments.device), heldout=arguments.heldout,
    )  # fmt: skip
    for row in table:
        print(json.dumps(row))
    columns = [key for key in table[0] if key.endswith("bits_per_byte")]
    print("mean " + ", ".join(f"{key} {np.mean([row[key] for row in table]):.4f}" for key in columns))


if __name__ == "__main__":
    main()
