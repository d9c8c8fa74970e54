import json

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from laaciq.errors import BadOption
from laaciq.exporting.gguf_pieces import adds_space, is_sentencepiece, scores
from laaciq.exporting.gguf_vocabulary import split_name
from tests.exporting.pieces import sentencepiece_tokenizer

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def described(pre_tokenizer, normalizer=None, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    return json.loads(tokenizer.to_str())


def split_by(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior="isolated"), BYTES])


def test_names_that_llama_cpp_knows():
    assert split_name(described(pre_tokenizers.ByteLevel(add_prefix_space=False))) == "gpt-2"
    assert split_name(described(split_by(LLAMA3), ignore_merges=True)) == "llama-bpe"
    assert split_name(described(split_by(QWEN2), normalizers.NFC())) == "qwen2"
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    assert split_name(described(digits, normalizers.NFC())) == "command-r"


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (described(pre_tokenizers.Metaspace()), "neither byte-level BPE nor"),
        (described(split_by(r"\d+")), "does not know how"),
        (described(pre_tokenizers.ByteLevel(add_prefix_space=True)), "does not know how"),
        (described(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.Lowercase()), "does not know how"),
        (described(split_by(LLAMA3)), "merges words differently"),
    ],
    ids=["sentencepiece", "digits", "prefix", "lowercase", "merges"],
)
def test_a_tokenizer_that_llama_cpp_would_not_follow_is_refused(tokenizer, message):
    with pytest.raises(BadOption, match=message):
        split_name(tokenizer)


def test_scores_of_a_sentencepiece_vocabulary():
    model = {"vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "bc": 5}}
    # "bc" comes last, so "ab" is joined before it.
    listed = [["a", "b"], ["ab", "c"], ["a", "bc"], ["b", "c"]]
    assert scores(model | {"merges": listed}) == {"ab": 0.0, "abc": -1.0, "bc": -2.0}
    with pytest.raises(BadOption, match="does not merge 'abc' as SentencePiece does"):
        scores(model | {"merges": [["a", "b"], ["ab", "c"], ["b", "c"]]})
    with pytest.raises(BadOption, match="does not merge 'abc' as SentencePiece does"):
        scores(model | {"merges": [["a", "b"], ["ab", "c"], ["b", "c"], ["a", "bc"]]})


@pytest.mark.parametrize("prefix", [True, False])
def test_a_space_before_a_text_is_declared(prefix):
    written = json.loads(sentencepiece_tokenizer(prefix=prefix).backend_tokenizer.to_str())
    assert is_sentencepiece(written)
    assert adds_space(written["normalizer"]["normalizers"], []) is prefix
    metaspace = {
        "type": "Metaspace",
        "replacement": "▁",
        "prepend_scheme": "first" if prefix else "never",
        "split": False,
    }
    assert adds_space([], [metaspace]) is prefix
    with pytest.raises(BadOption, match="does not know the step Lowercase"):
        adds_space([{"type": "Lowercase"}], [])
