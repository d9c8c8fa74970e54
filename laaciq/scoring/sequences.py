"""From a passage to model inputs: which tokens the model reads, and which are scored.

- causal: every token given those before it; the first only after a BOS. Long passages are read in sliding windows: each token is scored
  once, with at least half a window of context where the passage has it.
- masked: pseudo-likelihood by word, left to right within the word (Kauf & Ivanova 2023): a token is scored with itself and the rest of
  its word masked.
- encoder-decoder: span corruption (Raffel et al. 2020), 15 % in spans of three on average, fixed by the seed and the text.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from laaciq.corpus import Language, Passages
from laaciq.errors import BadOption, BrokenModel, BrokenTexts
from laaciq.models import LanguageModel
from laaciq.options import MeasureOptions
from laaciq.scoring.chat_templates import render_chat

CORRUPTED_SHARE = 0.15
MEAN_SPAN = 3
# T5's relative positions set no bound; this keeps attention affordable.
ENCODER_WINDOW = 512
SHORTEST_WINDOW = 8


@dataclass(frozen=True)
class ScoredSequence:
    """One pass of a model: `targets[k]` is scored by the logits at `positions[k]`. `decoder` is None except for encoder-decoders."""

    inputs: list[int]
    positions: list[int]
    targets: list[int]
    decoder: list[int] | None = None

    def __len__(self) -> int:
        return len(self.inputs) + len(self.decoder or ())


@dataclass(frozen=True)
class ScoredPassage:
    """A passage's sequences and the bytes of the tokens that they score."""

    sequences: list[ScoredSequence]
    scored_bytes: int

    @property
    def scored_tokens(self) -> int:
        return sum(len(sequence.targets) for sequence in self.sequences)


@dataclass(frozen=True)
class _Tokens:
    """The tokens of a passage without special tokens, each with its word and its bytes."""

    ids: list[int]
    words: list[int | None]
    byte_counts: list[int]


def prepare(
    model: LanguageModel, text: str, language: Language, *, window: int | None = None, chat: bool = False, seed: int = 0
) -> ScoredPassage:
    """The sequences on which `model` is scored for `text`; the same for every model with the same tokenizer and length."""
    tokens = _tokenize(model.tokenizer, text)
    longest = _window(model, window)
    if chat and model.kind != "causal":
        raise BadOption(f"a {model.kind} model has no chat template: leave out --chat")
    if model.kind == "masked":
        prepared = _masked(model.tokenizer, tokens, longest)
    elif model.kind == "encoder-decoder":
        prepared = _corrupted(model, tokens, min(longest, ENCODER_WINDOW), random.Random(f"{seed}:{text}"))
    else:
        prepared = _causal(tokens, prefix_tokens(model.tokenizer, language, chat=chat), longest)
    _require_rows(model, prepared)
    return prepared


def _require_rows(model: LanguageModel, passage: ScoredPassage) -> None:
    """A vocabulary may have more rows than the tokenizer has tokens, to fill it up; it may not have fewer than a text needs."""
    rows = model.vocabulary
    for sequence in passage.sequences:
        tokens = (*sequence.inputs, *(sequence.decoder or ()), *sequence.targets)
        if tokens and not 0 <= min(tokens) <= max(tokens) < rows:
            wrong = next(token for token in tokens if not 0 <= token < rows)
            raise BrokenModel(
                f"{model.folder.name} has {rows} tokens in its embeddings, and its tokenizer or config.json gives token {wrong}: "
                "they are those of another model, or damaged; copy both again"
            )


def start_tokens(tokenizer: Any) -> list[int]:
    """The tokens before a text: those that the tokenizer adds, else its BOS (GGUF tokenizers leave it out), else none."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    with_special = tokenizer("a")["input_ids"]
    before = next((i for i in range(len(with_special)) if with_special[i : i + len(bare)] == bare), 0)
    if before > 0:
        return with_special[:before]
    return [tokenizer.bos_token_id] if tokenizer.bos_token_id is not None else []


def first_tokens(tokenizer: Any, text: str, most: int) -> str:
    """The text up to the end of its first `most` tokens."""
    ends = [end for _, end in tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]]
    return text[: max(ends[:most], default=0)]


def prefix_tokens(tokenizer: Any, language: Language, *, chat: bool) -> list[int]:
    """The tokens before a passage: start tokens or, with `chat`, a request in the model's chat template, which the passage answers."""
    if not chat:
        return start_tokens(tokenizer)
    text = render_chat(tokenizer, f"Write a short passage in {language.name}.")
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def _window(model: LanguageModel, requested: int | None) -> int:
    longest = model.longest
    if requested is not None and (requested < SHORTEST_WINDOW or (longest is not None and requested > longest)):
        raise BadOption(
            f"window {requested} is out of range: {model.folder.name} takes 8 to {longest or 'any number of'} tokens"
        )
    if longest is not None and longest < SHORTEST_WINDOW:
        raise BrokenModel(f"{model.folder.name} takes {longest} tokens at once, by its config.json: that is too few")
    # Passages are short; a window of thousands would only cost memory.
    return requested or min(longest or 2048, 2048)


def _tokenize(tokenizer: Any, text: str) -> _Tokens:
    if not tokenizer.is_fast:
        raise BrokenModel(
            "this tokenizer has no fast version, which is needed to count bytes: convert it with transformers"
        )
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ends = [len(text[:end].encode()) for _, end in encoding["offset_mapping"]]
    # A character of several tokens belongs to the last of them; a space skipped between tokens, to the token after it.
    furthest = [0]
    for end in ends:
        furthest.append(max(furthest[-1], end))
    return _Tokens(encoding["input_ids"], encoding.word_ids(0), [b - a for a, b in pairwise(furthest)])


def _causal(tokens: _Tokens, prefix: list[int], longest: int) -> ScoredPassage:
    skipped = 0 if prefix else 1
    capacity = longest - len(prefix)
    if capacity < 2:
        raise BadOption(f"a window of {longest} leaves no room after {len(prefix)} tokens that come before every text")
    sequences, begin, done = [], 0, skipped
    while done < len(tokens.ids):
        end = min(begin + capacity, len(tokens.ids))
        inputs = prefix + tokens.ids[begin:end]
        positions = [len(prefix) + k - begin - 1 for k in range(done, end)]
        sequences.append(ScoredSequence(inputs, positions, tokens.ids[done:end]))
        done = end
        begin = done - capacity // 2
    return ScoredPassage(sequences, sum(tokens.byte_counts[skipped:]))


def _masked(tokenizer: Any, tokens: _Tokens, longest: int) -> ScoredPassage:
    before, after = _surroundings(tokenizer)
    capacity = longest - len(before) - len(after)
    sequences = []
    for begin in range(0, len(tokens.ids), capacity):
        body, words = tokens.ids[begin : begin + capacity], tokens.words[begin : begin + capacity]
        for k, target in enumerate(body):
            rest_of_word = [words[j] == words[k] and j >= k for j in range(len(body))]
            shown = [tokenizer.mask_token_id if hidden else i for i, hidden in zip(body, rest_of_word, strict=True)]
            sequences.append(ScoredSequence([*before, *shown, *after], [len(before) + k], [target]))
    return ScoredPassage(sequences, sum(tokens.byte_counts))


def _surroundings(tokenizer: Any) -> tuple[list[int], list[int]]:
    if tokenizer.mask_token_id is None:
        raise BrokenModel("this masked model's tokenizer has no mask token: it cannot be scored")
    inner = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a")["input_ids"]
    at = next((i for i in range(len(whole)) if inner and whole[i : i + len(inner)] == inner), None)
    if at is None:
        raise BrokenModel("this tokenizer changes a text when it adds special tokens: it cannot be scored")
    return whole[:at], whole[at + len(inner) :]


def _corrupted(model: LanguageModel, tokens: _Tokens, longest: int, rng: random.Random) -> ScoredPassage:
    sentinel = _sentinels(model)
    end_id = model.tokenizer.eos_token_id
    start_id = model.module.config.decoder_start_token_id
    if end_id is None or start_id is None:
        raise BrokenModel(
            f"{model.folder.name} has no eos_token in its tokenizer or no decoder_start_token_id in config.json: copy it again"
        )
    sequences, scored_bytes = [], 0
    for begin in range(0, len(tokens.ids), longest - 1):
        body = tokens.ids[begin : begin + longest - 1]
        hidden = _spans(len(body), rng)
        inputs, decoder, positions, targets = [], [start_id], [], []
        cursor = 0
        for number, (first, last) in enumerate(hidden):
            inputs += [*body[cursor:first], sentinel(number)]
            decoder.append(sentinel(number))
            for k in range(first, last):
                positions.append(len(decoder) - 1)
                targets.append(body[k])
                decoder.append(body[k])
                scored_bytes += tokens.byte_counts[begin + k]
            cursor = last
        inputs += [*body[cursor:], end_id]
        sequences.append(ScoredSequence(inputs, positions, targets, decoder[:-1]))
    return ScoredPassage(sequences, scored_bytes)


def _sentinels(model: LanguageModel) -> Callable[[int], int]:
    known = model.tokenizer.get_vocab()
    # Rows beyond the tokenizer were never trained.
    top = min(model.vocabulary, len(model.tokenizer)) - 1
    return lambda number: known.get(f"<extra_id_{number}>", top - number)


def _spans(length: int, rng: random.Random) -> list[tuple[int, int]]:
    """Disjoint spans, not touching, in order, that cover about 15 % of `length` positions (at least one)."""
    noise = max(1, round(CORRUPTED_SHARE * length))
    count = max(1, min(round(noise / MEAN_SPAN), (length - noise + 1)))
    cuts = sorted(rng.sample(range(1, noise), count - 1)) if noise > 1 else []
    sizes = [b - a for a, b in pairwise([0, *cuts, noise])]
    # Gaps between spans are at least one; the ends may be zero.
    slots = sorted(rng.sample(range(length - noise + 1), count))
    spans, hidden = [], 0
    for slot, size in zip(slots, sizes, strict=True):
        spans.append((slot + hidden, slot + hidden + size))
        hidden += size
    return spans


def prepare_all(
    model: LanguageModel, passages: Passages, options: MeasureOptions = MeasureOptions()
) -> list[ScoredPassage]:
    """`prepare` for every passage of one language."""
    prepared = [
        prepare(model, text, passages.language, window=options.window, chat=options.chat, seed=options.seed)
        for text in passages.texts
    ]
    if not any(sequence.targets for passage in prepared for sequence in passage.sequences):
        raise BrokenTexts(
            f"the passages in {passages.language.name} ({passages.language.code}) have no token to score: they are too short"
        )
    return prepared
