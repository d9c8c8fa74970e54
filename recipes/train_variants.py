"""Train the variants of the reference model that `variants.toml` names, each with several seeds.

    python recipes/train_variants.py --texts FOLDER --out FOLDER

Texts are as for `train_reference.py`. They are tokenized once, with the tokenizer of the reference model. Then every variant and seed is
trained by a process of its own, `--jobs` at a time, into `FOLDER/<variant>-<seed>`: a transformers checkpoint with `training.json`,
`languages.json` and `log.txt`. The same command resumes: what is complete is not trained again. `measure_variants.py` measures them.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import torch
from reference_data import Documents, Language, encode
from train_reference import read_languages, train_and_save
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).parent
TOKENIZER = HERE.parent / "laaciq" / "reference" / "model"
DOCUMENTS, LANGUAGES = "documents.npz", "languages.json"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", type=Path, required=True, help="folder of <code>.txt or <code>.txt.xz")
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoints")
    parser.add_argument("--recipe", type=Path, default=HERE / "variants.toml")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, … of every variant")
    parser.add_argument("--variants", help="only these, for example base,no-decay")
    parser.add_argument("--jobs", type=int, default=3, help="processes that train at the same time")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--train", nargs=2, metavar=("VARIANT", "SEED"), help="train this one, in this process")
    return parser.parse_args()


def variant_names(recipe: dict, chosen: str | None) -> list[str]:
    names = list(recipe["variants"]) if chosen is None else chosen.split(",")
    if unknown := [name for name in names if name not in recipe["variants"]]:
        raise SystemExit(f"unknown variant {unknown[0]!r}: give one of {', '.join(recipe['variants'])}")
    return names


def variant_recipe(recipe: dict, name: str, seed: int) -> dict:
    """The recipe of one variant, in the form of `reference.toml`."""
    result = {section: copy.deepcopy(recipe[section]) for section in ("texts", "model", "training")}
    for section, changes in recipe["variants"][name].items():
        if unknown := [key for key in changes if key not in result.get(section, {})]:
            raise SystemExit(f"variant {name}: unknown key {section}.{unknown[0]}")
        result[section] |= changes
    result["training"]["seed"] = seed
    return result


def read_tokenizer() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(TOKENIZER)


def prepare(texts: Path, recipe: dict, folder: Path) -> None:
    """Tokenize all texts, once for all variants."""
    if (folder / LANGUAGES).exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    languages = read_languages(texts, recipe)
    documents = encode(languages, read_tokenizer().backend_tokenizer, longest=recipe["training"]["row_tokens"])
    print(f"{len(documents.tokens) / 1e6:.1f} M tokens", flush=True)
    documents.save(folder / DOCUMENTS)
    kept = [{key: value for key, value in asdict(language).items() if key != "training"} for language in languages]
    (folder / "part").write_text(json.dumps(kept))
    os.replace(folder / "part", folder / LANGUAGES)


def train_one(recipe: dict, prepared: Path, out: Path, device: str) -> None:
    tokenizer = read_tokenizer()
    languages = [Language(**kept) for kept in json.loads((prepared / LANGUAGES).read_text())]
    documents = Documents.load(prepared / DOCUMENTS)
    recipe["model"]["vocabulary"] = len(tokenizer)
    train_and_save(recipe, languages, tokenizer, documents, out=out, device=torch.device(device))


def run_alone(arguments: argparse.Namespace, name: str, seed: int) -> bool:
    """Train one variant in a process of its own; True if its checkpoint is complete."""
    out = arguments.out / f"{name}-{seed}"
    if not (out / LANGUAGES).exists():
        out.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, __file__, "--texts", str(arguments.texts), "--out", str(arguments.out)]
        command += ["--recipe", str(arguments.recipe), "--device", arguments.device, "--train", name, str(seed)]
        with (out / "log.txt").open("a") as log:
            subprocess.run(  # noqa: S603 (this file again)
                command, stdout=log, stderr=subprocess.STDOUT, check=False
            )
    complete = (out / LANGUAGES).exists()
    if complete:
        training = json.loads((out / "training.json").read_text())
        last = training["log"][-1]
        print(f"{out.name}: loss {last['loss']:.3f} after {last['seconds']:.0f} s", flush=True)
    else:
        print(f"{out.name}: failed, see {out / 'log.txt'}", flush=True)
    return complete


def main() -> None:
    arguments = parse()
    recipe = tomllib.loads(arguments.recipe.read_text())
    prepared = arguments.out / "prepared"
    if arguments.train is not None:
        name, seed = arguments.train
        train_one(variant_recipe(recipe, name, int(seed)), prepared, arguments.out / f"{name}-{seed}", arguments.device)
        return
    names = variant_names(recipe, arguments.variants)
    prepare(arguments.texts, recipe, prepared)
    # Seed by seed: what is there after an interruption compares all variants.
    runs = [(name, seed) for seed in range(arguments.seeds) for name in names]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        complete = list(pool.map(lambda run: run_alone(arguments, *run), runs))
    if not all(complete):
        raise SystemExit(f"{complete.count(False)} of {len(runs)} failed: the same command tries them again")


if __name__ == "__main__":
    main()
