"""Texts, tokenizer and training order of the reference model.

The order of all documents over the whole training is fixed by the seed before the first step, so that any step
can be computed without the ones before it, and training can be resumed.
"""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

BOS, EOS, PAD = "<s>", "</s>", "<pad>"
MAX_PASSES = 10


@dataclass(frozen=True)
class Language:
    """One language: how much text it has, and the passages held back to measure bits per byte."""

    code: str
    held_back: list[str]
    available_bytes: int
    training_bytes: int


@dataclass(frozen=True)
class LanguageText(Language):
    """With the passages to train on."""

    training: list[str]


def byte_count(passages: list[str]) -> int:
    return sum(len(passage.encode()) for passage in passages)


def read_passages(folder: Path, code: str) -> list[str]:
    """The lines of `<code>.txt` or `<code>.txt.xz`."""
    plain, packed = folder / f"{code}.txt", folder / f"{code}.txt.xz"
    if plain.exists():
        text = plain.read_text(encoding="utf-8")
    elif packed.exists():
        text = lzma.decompress(packed.read_bytes()).decode("utf-8")
    else:
        raise SystemExit(f"no text for {code}: neither {plain} nor {packed.name} exists")
    return [line for line in text.split("\n") if line.strip()]


def read_language(folder: Path, code: str, *, most_bytes: int) -> LanguageText:
    """Hold back 2 % of the lines (200 at most), then keep training lines from the front up to `most_bytes` (0: all)."""
    passages = read_passages(folder, code)
    held_back_count = min(200, max(1, len(passages) // 50))
    held_back, rest = passages[:held_back_count], passages[held_back_count:]
    ends = np.cumsum([len(passage.encode()) for passage in rest])
    keep = len(rest) if most_bytes == 0 else int(np.searchsorted(ends, most_bytes, side="right"))
    if keep == 0:
        raise SystemExit(f"no training text for {code}: {len(passages)} lines, at most {most_bytes} bytes allowed")
    training = rest[:keep]
    return LanguageText(code, held_back, byte_count(passages), byte_count(training), training)


def train_tokenizer(languages: list[LanguageText], vocabulary: int) -> Tokenizer:
    """Byte-level BPE with GPT-2's pre-tokenizer; `<s>` is put before every text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[BOS, EOS, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((line for language in languages for line in language.training), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return tokenizer


@dataclass(frozen=True)
class Documents:
    """Every training passage as `<s> tokens </s>`, end to end, with its language's index."""

    tokens: np.ndarray
    starts: np.ndarray
    language: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    def save(self, path: Path) -> None:
        np.savez(path, tokens=self.tokens, starts=self.starts, language=self.language)

    @classmethod
    def load(cls, path: Path) -> Documents:
        with np.load(path) as arrays:
            return cls(arrays["tokens"], arrays["starts"], arrays["language"])


def encode(languages: list[LanguageText], tokenizer: Tokenizer, *, longest: int) -> Documents:
    end = tokenizer.token_to_id(EOS)
    pieces, indices = [], []
    for index, language in enumerate(languages):
        for encoding in tokenizer.encode_batch(language.training):
            pieces.append(np.array([*encoding.ids[: longest - 1], end], dtype=np.uint16))
            indices.append(index)
    lengths = np.array([len(piece) for piece in pieces])
    return Documents(
        np.concatenate(pieces), np.concatenate([[0], np.cumsum(lengths)]), np.array(indices, dtype=np.int16)
    )


def passes_by_language(documents: Documents, *, passes: float, mix_exponent: float) -> np.ndarray:
    """Passes over each language's text, for a mix p ∝ size^exponent that costs as many tokens as `passes` over all."""
    size = np.bincount(documents.language, weights=documents.lengths)
    share = size**mix_exponent / (size**mix_exponent).sum()
    result = passes * size.sum() * share / size
    if result.max() > MAX_PASSES:
        raise SystemExit(
            f"a language would pass over its text {result.max():.1f} times, more than {MAX_PASSES}: "
            f"give fewer passes than {passes} or a mix exponent nearer to 1 than {mix_exponent}"
        )
    return result


def training_order(documents: Documents, passes: np.ndarray, *, seed: int) -> np.ndarray:
    """Document numbers in training order: every language is spread evenly over the training, each pass in a new order."""
    order, moments = [], []
    for index, count in enumerate(passes):
        members = np.flatnonzero(documents.language == index)
        draws = max(1, round(len(members) * count))
        random = np.random.default_rng([seed, index])
        cycles = -(-draws // len(members))
        order.append(np.concatenate([random.permutation(members) for _ in range(cycles)])[:draws])
        moments.append((np.arange(draws) + random.random(draws)) / draws)
    return np.concatenate(order)[np.argsort(np.concatenate(moments), kind="stable")]


def rows_of(order: np.ndarray, documents: Documents, *, row_tokens: int) -> np.ndarray:
    """Positions in `order` where a row begins: whole documents only, so that every row starts at a `<s>`."""
    ends = np.concatenate([[0], np.cumsum(documents.lengths[order])])
    starts = [0]
    while starts[-1] < len(order):
        starts.append(int(np.searchsorted(ends, ends[starts[-1]] + row_tokens, side="right")) - 1)
    return np.array(starts)


def fill_rows(
    rows: range, row_starts: np.ndarray, order: np.ndarray, documents: Documents, *, row_tokens: int, pad: int
) -> np.ndarray:
    batch = np.full((len(rows), row_tokens), pad, dtype=np.int64)
    for line, row in enumerate(rows):
        members = order[row_starts[row] : row_starts[row + 1]]
        text = np.concatenate([documents.tokens[documents.starts[d] : documents.starts[d + 1]] for d in members])
        batch[line, : len(text)] = text
    return batch
