import math

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from laaciq.corpus import Passages, Texts, language, read_split
from laaciq.errors import BrokenTexts
from laaciq.models import find_model
from laaciq.profiling.tokenization import is_fallback, tokenization, word_count
from tests.tiny import save_tiny


def texts_of(parallel=True, **by_code):
    by_language = {
        code: Passages(language(code), tuple(lines), tuple(map(str, range(len(lines)))))
        for code, lines in by_code.items()
    }
    return Texts("here", by_language, parallel)


def words_tokenizer(*words):
    backend = Tokenizer(models.WordLevel({"[UNK]": 0, **{word: k for k, word in enumerate(words, 1)}}, "[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")


def byte_fallback_tokenizer(letters):
    """As SentencePiece's: letters, and a token for every byte of what is not a letter."""
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *letters]
    backend = Tokenizer(
        models.BPE({token: k for k, token in enumerate(tokens)}, [], unk_token="<unk>", byte_fallback=True)
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


@pytest.fixture(scope="module")
def reference():
    split = read_split()
    tokenized = tokenization(AutoTokenizer.from_pretrained(find_model("reference").path), split.test)
    return split.test, {result.language: result for result in tokenized}


def test_words_tokens_and_bytes():
    texts = texts_of(eng=["one two – three", "one"], deu=["one two", "two"])
    english, german = tokenization(words_tokenizer("one", "two", "three", "–"), texts)
    assert (english.tokens, english.words, english.bytes) == (5, 4, 20)
    assert english.tokens_per_word == 5 / 4
    assert english.tokens_per_byte == 5 / 20
    assert (english.against_english, german.against_english) == (1, 3 / 5)


def test_nothing_to_compare_with_without_parallel_english():
    tokenizer = words_tokenizer("one")
    apart, alone = texts_of(parallel=False, eng=["one"], deu=["one"]), texts_of(deu=["one"], fra=["one"])
    assert [t.against_english for t in (*tokenization(tokenizer, apart), *tokenization(tokenizer, alone))] == [None] * 4


def test_special_tokens_are_not_counted(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(save_tiny("bert", tmp_path))
    assert len(tokenizer("a")["input_ids"]) == 3
    (result,) = tokenization(tokenizer, texts_of(eng=["a", "a"]))
    assert result.tokens == 2


def test_unknown_tokens_are_fallback():
    (result,) = tokenization(words_tokenizer("one", "two"), texts_of(eng=["one two three four"]))
    assert result.fallback_share == 1 / 2


def test_byte_fallback_tokens_are_fallback():
    (result,) = tokenization(byte_fallback_tokenizer("abc"), texts_of(eng=["abc", "aé"]))
    # ▁abc and ▁a are whole; é is two bytes.
    assert (result.tokens, result.fallback_share) == (8, 2 / 8)


def test_pieces_of_characters_are_fallback_and_whole_ones_are_not(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(save_tiny("llama", tmp_path))
    byte_of = {character: byte for byte, character in _byte_level_alphabet().items()}
    for token, index in tokenizer.get_vocab().items():
        if index in tokenizer.all_special_ids:
            continue
        content = bytes(byte_of[character] for character in token)
        # No character is left when broken ones are dropped, but there was something other than space.
        expected = not content.decode(errors="ignore").strip() and bool(content.decode(errors="replace").strip())
        assert is_fallback(tokenizer, index) == expected, token


def _byte_level_alphabet():
    """GPT-2's: printable Latin-1 bytes stand for themselves, the others for characters from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + k) for k, byte in enumerate(others)}


def test_languages_that_the_reference_tokenizer_was_not_made_for_fall_back_to_bytes(reference):
    _, result = reference
    assert result["eng"].fallback_share < 0.001
    for code in ("amh", "mya", "tel"):
        assert result[code].fallback_share > 0.9
        assert result[code].against_english > 5
    assert result["eng"].against_english == 1


def test_counts_agree_with_the_texts(reference):
    texts, tokenized = reference
    for code, result in tokenized.items():
        assert result.bytes == texts[code].byte_count
        assert result.tokens_per_byte == result.tokens / result.bytes
        assert 0 <= result.fallback_share <= 1


def test_scripts_without_spaces_have_no_words(reference):
    _, tokenized = reference
    assert {code for code, result in tokenized.items() if result.words is None} == {
        "jpn",
        "khm",
        "lao",
        "mya",
        "tha",
        "zho",
    }
    assert all(result.tokens_per_word is None for result in tokenized.values() if result.words is None)
    assert math.isclose(tokenized["eng"].tokens_per_word, tokenized["eng"].tokens / tokenized["eng"].words)


@pytest.mark.parametrize(
    ("text", "count"), [("It's 7 o'clock — late!", 4), ("漢字かな交じり文", None), ("한국어 낱말", 2), ("…", 0)]
)
def test_word_count(text, count):
    assert word_count(text) == count


@pytest.mark.parametrize("passages", [[], [""]])
def test_a_language_without_text(passages):
    with pytest.raises(BrokenTexts, match=r"English \(eng\) have no token"):
        tokenization(words_tokenizer("one"), texts_of(eng=passages))
