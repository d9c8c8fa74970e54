import json

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from laaciq.errors import BadOption
from laaciq.exporting.gguf_vocabulary import split_name

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


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (described(pre_tokenizers.Metaspace()), "not byte-level BPE"),
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
