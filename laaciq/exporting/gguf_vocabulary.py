"""A tokenizer in a GGUF file: byte-level BPE, with the name by which runtimes know how text is split before merging; or SentencePiece."""

from __future__ import annotations

import json
from typing import Any

from laaciq.errors import BadOption
from laaciq.exporting.gguf_pieces import adds_space, is_byte, is_sentencepiece, scores, with_spaces
from laaciq.models.gguf_file import import_gguf

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# By the pattern of the split that comes before the bytes. Without one, bytes are split as in GPT-2.
_SPLITS = {_LLAMA3: "llama-bpe", _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"): "qwen2"}
# These runtimes take a word that is a token as it is, without merging.
_WHOLE_WORDS = {"llama-bpe"}


def describe_vocabulary(writer: Any, tokenizer: Any, size: int) -> None:
    """Write tokens, up to the `size` of the embeddings, merges, special tokens, and whether BOS and EOS are added."""
    gguf = import_gguf()
    described = json.loads(tokenizer.backend_tokenizer.to_str())
    pieces = is_sentencepiece(described)
    tokens, types = [], []
    added = tokenizer.added_tokens_decoder
    by_id = {index: token for token, index in tokenizer.get_vocab().items()}
    for index in range(size):
        token = by_id.get(index, f"[PAD{index}]")
        kind = gguf.TokenType.UNUSED if index not in by_id else _type(token, added.get(index), described)
        tokens.append(with_spaces(token) if pieces and kind == gguf.TokenType.USER_DEFINED else token)
        types.append(kind)
    if pieces:
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        by_token = scores(described["model"])
        writer.add_token_scores([by_token.get(token, 0.0) for token in tokens])
        normalizers = _steps(described["normalizer"], "normalizers")
        splits = _steps(described["pre_tokenizer"], "pretokenizers")
        writer.add_add_space_prefix(adds_space(normalizers, splits))
    else:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(split_name(described))
        merges = described["model"]["merges"]
        writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    for role in ("bos", "eos", "unk", "pad"):
        if (index := getattr(tokenizer, f"{role}_token_id")) is not None:
            getattr(writer, f"add_{role}_token_id")(index)
    before, after = _around(tokenizer)
    writer.add_add_bos_token(before)
    writer.add_add_eos_token(after)
    if isinstance(tokenizer.chat_template, str):
        writer.add_chat_template(tokenizer.chat_template)


def _type(token: str, added: Any, described: dict[str, Any]) -> Any:
    gguf = import_gguf()
    if is_sentencepiece(described) and token == described["model"].get("unk_token"):
        return gguf.TokenType.UNKNOWN
    if is_sentencepiece(described) and is_byte(token):
        return gguf.TokenType.BYTE
    if added is None:
        return gguf.TokenType.NORMAL
    return gguf.TokenType.CONTROL if added.special else gguf.TokenType.USER_DEFINED


def split_name(described: dict[str, Any]) -> str:
    """llama.cpp's name for how a tokenizer, given as tokenizer.json, splits text."""
    model = described["model"]
    steps = _steps(described["pre_tokenizer"], "pretokenizers")
    if model["type"] != "BPE" or not steps or steps[-1]["type"] != "ByteLevel":
        raise BadOption(
            "this model's tokenizer is neither byte-level BPE nor SentencePiece's, which can be written to GGUF: give another --format"
        )
    *splits, last = steps
    name = None
    if not splits and last["use_regex"]:
        name = "gpt-2"
    elif len(splits) == 1 and splits[0]["type"] == "Digits" and splits[0]["individual_digits"] and last["use_regex"]:
        name = "command-r"
    elif len(splits) == 1 and splits[0]["type"] == "Split" and not last["use_regex"]:
        name = _SPLITS.get(splits[0]["pattern"].get("Regex"))
    # llama.cpp's converter also leaves out the composition of characters that Qwen uses.
    changed = [step["type"] for step in _steps(described["normalizer"], "normalizers") if step["type"] != "NFC"]
    if name is None or changed or last["add_prefix_space"]:
        raise BadOption("llama.cpp does not know how this tokenizer splits text: give another --format")
    if bool(model.get("ignore_merges")) != (name in _WHOLE_WORDS):
        raise BadOption(f"this tokenizer merges words differently from llama.cpp's {name!r}: give another --format")
    return name


def _steps(described: dict[str, Any] | None, parts: str) -> list[dict[str, Any]]:
    if described is None:
        return []
    return described[parts] if described["type"] == "Sequence" else [described]


def _around(tokenizer: Any) -> tuple[bool, bool]:
    """Whether a text gets a BOS token before it, and an EOS token after it."""
    text = "a"
    plain = tokenizer(text, add_special_tokens=False)["input_ids"]
    whole = tokenizer(text)["input_ids"]
    for before in ([], [tokenizer.bos_token_id]):
        for after in ([], [tokenizer.eos_token_id]):
            if before + plain + after == whole:
                return bool(before), bool(after)
    raise BadOption(
        "this tokenizer adds more than BOS and EOS to a text, which GGUF cannot express: give another --format"
    )
