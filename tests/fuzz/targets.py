"""What is damaged, how, and which readers and commands take it afterwards."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from laaciq.commands.profile import read_exposure
from tests.fuzz import mutations as change
from tests.fuzz import tensors, uses
from tests.fuzz import texts as text
from tests.fuzz.inputs import FOREIGN, OTHER_KINDS, Inputs
from tests.fuzz.mutations import Mutator

Use = Callable[[Path, Inputs], object]

_FILE = (change.no_file, change.random_bytes, change.cut, change.flipped_bits)
_TEXT = (*_FILE, change.not_utf8, change.sparse)
# After these, entries are possible, and perhaps wrong.
_SUBTLE = (*[change.other_value] * 4, *[change.lost_entry] * 2, *[change.more_entries] * 2, change.exchanged)
# Of files whose entries another library defines.
_JSON = (*_TEXT, change.other_top, change.no_number, change.deep, change.half_surrogate, change.key_twice, *_SUBTLE)
# Of files that are too large for every entry to be looked at.
_LARGE = (*_TEXT, change.other_top, change.deep, *_SUBTLE)
# Of files whose entries we define.
_RECORD = (*_JSON, *[change.other_type] * 3)
# A text that is cut short is a text.
_LINES = (change.no_file, change.random_bytes, change.not_utf8, change.sparse, *[text.lines] * 3, text.folder_of_texts)
_TENSORS = (
    *(*_FILE, tensors.no_numbers_in_tensor, tensors.no_tensor, tensors.other_shape, tensors.integers),
    *(tensors.other_values_in_tensor, tensors.other_header, tensors.other_header),
)


def _perhaps_optional(path: Path, random: Random) -> change.Mutation:
    """Some parts of other libraries' layers may be missing."""
    return dataclasses.replace(tensors.no_tensor(path, random), wrong=False)


_FOREIGN_TENSORS = tuple(_perhaps_optional if mutator is tensors.no_tensor else mutator for mutator in _TENSORS)


@dataclass(frozen=True)
class Target:
    """`file` of the input `source` is damaged by one of the `mutators`; `use` then takes the input. `optional`: the file may also be
    missing. `remade`: what is damaged is found out and made again, or may be right."""

    name: str
    source: str
    file: str
    mutators: tuple[Mutator, ...]
    use: Use
    optional: bool = False
    remade: bool = False


def _license(path: Path, random: Random) -> change.Mutation:
    heads = (
        *(
            "license: mit",
            "license: [a, b]",
            "license: &a [*a]",
            "- a",
            "license: " + "[" * 3000,
            "license: 3",
            "a: [*b]",
        ),
        *("license: !!python/name:os.system", "license: \x01", "license: 2020-99-99", "license: 'a\\nb'"),
    )
    change.replace(path, f"---\n{random.choice(heads)}\n---\n# card\n".encode())
    return change.Mutation("another head")


TARGETS: tuple[Target, ...] = (
    Target("config.json", "model", "config.json", _JSON, uses.use_model),
    Target("config.json", "model", "config.json", _JSON, uses.use_model),
    Target("model.safetensors", "model", "model.safetensors", _TENSORS, uses.use_model),
    Target("tokenizer.json", "model", "tokenizer.json", _LARGE, uses.use_model, optional=True),
    Target("tokenizer_config.json", "model", "tokenizer_config.json", _JSON, uses.use_model, optional=True),
    Target("generation_config.json", "model", "generation_config.json", _JSON, uses.use_model, optional=True),
    Target("index", "sharded", "model.safetensors.index.json", _JSON, uses.stream_model),
    Target("shard", "sharded", "model-00002-of-00002.safetensors", _TENSORS, uses.stream_model),
    Target("GGUF", "gguf/model.gguf", "", (*_FILE, text.gguf_header, text.gguf_word, text.gguf_word), uses.use_model),
    *(Target(f"{name} config", name, "config.json", _JSON, uses.load_model) for name in FOREIGN),
    *(Target(f"{name} weights", name, "model.safetensors", _FOREIGN_TENSORS, uses.load_model) for name in FOREIGN),
    Target("checkpoint config", "checkpoint", "config.json", _JSON, uses.use_checkpoint),
    Target("checkpoint weights", "checkpoint", "model.safetensors", _TENSORS, uses.use_checkpoint),
    Target("exported config", "in-blocks", "config.json", _JSON, uses.export),
    Target("exported plan", "in-blocks", "plan.json", _RECORD, uses.export),
    Target("exported weights", "in-blocks", "model.safetensors", _TENSORS, uses.export),
    Target("plan", "plan.json", "", _RECORD, uses.use_plan),
    Target("plan", "plan.json", "", _RECORD, uses.use_plan),
    Target("evaluation", "run", "evaluation.json", _RECORD, uses.check_and_card),
    Target("plans", "run", "plans.json", _RECORD, uses.card),
    Target("profile", "run", "profile.json", _RECORD, uses.use_profile),
    Target("marker", "run", "run.json", _JSON, uses.use_marker),
    Target("run's plan", "run", "checkpoint/plan.json", _RECORD, uses.card),
    Target("texts", "texts", "swa.txt", _LINES, uses.use_texts, optional=True),
    Target("jsonl", "texts.jsonl", "", (*_TEXT, text.records, text.records, text.column), uses.use_texts),
    Target("parquet", "texts.parquet", "", (*_FILE, text.records, text.records, text.column), uses.use_texts),
    Target(
        "recipe", "recipe.yaml", "", (change.no_file, change.not_utf8, text.recipe, text.recipe_value), uses.use_recipe
    ),
    Target("exposure", "exposure.json", "", _RECORD, lambda path, inputs: read_exposure(path)),
    Target("variants", "variants.json", "", _RECORD, uses.use_variants),
    Target("options", "options.json", "", (*_SUBTLE, change.other_type), uses.use_options, remade=True),
    *(Target(f"{name} config", name, "config.json", _JSON, uses.use_model) for name in OTHER_KINDS),
    *(Target(f"{name} tokenizer", name, "tokenizer_config.json", _SUBTLE, uses.use_model) for name in OTHER_KINDS),
    Target("original's card", "model", "README.md", (_license,), uses.use_original_card),
)
# Whole commands, which take longer: one case in `SLOW_EVERY`.
SLOW_EVERY = 12
SLOW_TARGETS: tuple[Target, ...] = (
    Target("measured texts", "texts", "swa.txt", (text.lines,), uses.measure_texts),
    Target("profiled config", "model", "config.json", _SUBTLE, uses.profile),
    Target("profiled weights", "model", "model.safetensors", (tensors.other_values_in_tensor,), uses.profile),
    Target("evaluated config", "model", "config.json", _SUBTLE, uses.evaluate),
    Target("evaluated tokenizer", "model", "tokenizer.json", _SUBTLE, uses.evaluate),
    Target("resumed marker", "run", "run.json", _JSON, uses.resume, optional=True),
    Target(
        "resumed key", "run", "keys/profile.json.key", (change.flipped_bits, change.no_file), uses.resume, remade=True
    ),
    Target("resumed result", "run", "trials/run/test/swa.json", _RECORD, uses.resume, remade=True),
)


def target_of(number: int) -> Target:
    """All targets in turn."""
    turn, slow = divmod(number, SLOW_EVERY)
    return SLOW_TARGETS[turn % len(SLOW_TARGETS)] if slow == 0 else TARGETS[(number - turn - 1) % len(TARGETS)]
