import functools
import itertools
import json
import math
import operator
from dataclasses import fields

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from laaciq.corpus import language, read_split
from laaciq.errors import BadOption, BrokenModel, BrokenTexts
from laaciq.models import find_model, load
from laaciq.options import MeasureOptions
from laaciq.scoring.likelihood import FEWEST_COMPARED, _losses, compared_rows, read_through, score, target_logits
from laaciq.scoring.sequences import _spans, prepare, prepare_all, start_tokens
from laaciq.trials.measurement import measure
from tests.tiny import ARCHITECTURES, passages_of, save_tiny

ENGLISH = language("eng")
TEXTS = ("The cat sat.", "A much longer sentence with number 42 in it.", "Привет, мир!", "Ok then", "नमस्ते दुनिया")
# Float32 sums of a few dozen terms of size 1 to 10, in another order.
CLOSE = {"rtol": 2e-5, "atol": 2e-4}


def pair(architecture, folder):
    return [load(find_model(save_tiny(architecture, folder / str(seed), seed=seed))) for seed in (0, 1)]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_batch_size_and_padding_change_no_passage(architecture, tmp_path):
    original, quantized = pair(architecture, tmp_path)
    passages = prepare_all(original, passages_of(TEXTS))
    together = score(original, quantized, passages, most_tokens=10_000)
    some = score(original, quantized, passages, most_tokens=64)
    alone = [score(original, quantized, [passage], most_tokens=1) for passage in passages]
    for name in ("tokens", "original_nll", "quantized_nll", "kl", "agreed"):
        single = np.concatenate([getattr(scores, name) for scores in alone])
        np.testing.assert_allclose(getattr(together, name), single, **CLOSE)
        np.testing.assert_allclose(getattr(some, name), single, **CLOSE)


def test_how_many_rows_are_compared_at_once_changes_no_digit(tmp_path, monkeypatch):
    original, quantized = pair("llama", tmp_path)
    passages = prepare_all(original, passages_of(TEXTS))
    found = []
    for most in (0, 2**30):
        monkeypatch.setattr("laaciq.scoring.likelihood.COMPARED_BYTES", most)
        rows = compared_rows(original.vocabulary, on_cpu=True)
        assert rows > 1000 if most else rows == FEWEST_COMPARED
        scores = score(original, quantized, passages)
        found.append([getattr(scores, field.name).tolist() for field in fields(scores)])
    assert found[0] == found[1]


def test_the_gradient_of_logits_in_16_bits_is_rounded_once():
    """That of a token with p near one is p − 1: of p rounded to 8 bits, little would be left."""
    torch.manual_seed(0)
    targets = torch.arange(6)
    rounded = torch.randn(6, 50).index_put((targets, targets), torch.linspace(2, 12, 6)).bfloat16().requires_grad_()
    exact = rounded.detach().float().requires_grad_()
    for logits in (rounded, exact):
        _losses(logits, targets).sum().backward()
    assert exact.grad[5, 5].abs() < 0.001
    assert torch.equal(rounded.grad, exact.grad.bfloat16())


@pytest.mark.parametrize("architecture", ["llama", "mt5"])
def test_a_short_text_has_the_same_likelihood_with_any_number_of_threads(architecture, tmp_path):
    """To the last bit. Alone it would be a product of 5 to 11 rows, which MKL splits between threads."""
    model = load(find_model(save_tiny(architecture, tmp_path / "model")))
    before, found = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        passages = [prepare_all(model, passages_of((text,))) for text in ("The cat", "Ok then", "Cats sat.")]
        found.append([score(model, model, passage).original_nll.tolist() for passage in passages])
    torch.set_num_threads(before)
    assert found[0] == found[1]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_head_is_given_what_is_scored_alone(architecture, tmp_path, monkeypatch):
    model, _ = pair(architecture, tmp_path)
    sequences = [s for passage in prepare_all(model, passages_of(TEXTS)) for s in passage.sequences]
    targets = sum(len(s.targets) for s in sequences)
    given = []
    handle = model.module.get_output_embeddings().register_forward_hook(
        lambda module, entering, leaving: given.append(leaving.shape[:-1].numel())
    )
    logits = target_logits(model, sequences)
    read_through(model, sequences)
    assert given == [targets, 0]
    handle.remove()
    # As in a model without a separate head.
    monkeypatch.setattr(model.module, "get_output_embeddings", lambda: None)
    torch.testing.assert_close(logits, target_logits(model, sequences), **CLOSE)


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "bloom", "qwen2"])
def test_causal_likelihood_equals_one_plain_pass(architecture, tmp_path):
    original, quantized = pair(architecture, tmp_path)
    text = TEXTS[1]
    scores = score(original, quantized, [prepare(original, text, ENGLISH)])
    ids = start_tokens(original.tokenizer) + original.tokenizer(text, add_special_tokens=False)["input_ids"]
    inputs = torch.tensor([ids], device=original.device)
    logs = [m.module(inputs).logits[0, :-1].double().log_softmax(-1) for m in (original, quantized)]
    target = inputs[0, 1:, None]
    assert scores.tokens[0] == len(ids) - 1
    assert scores.original_nll[0] == pytest.approx(-logs[0].gather(1, target).sum().item(), rel=1e-5)
    assert scores.kl[0] == pytest.approx((logs[0].exp() * (logs[0] - logs[1])).sum().item(), rel=1e-4)
    assert scores.agreed[0] == int((logs[0].argmax(-1) == logs[1].argmax(-1)).sum())


def test_bytes_are_those_of_scored_tokens(tmp_path):
    with_bos, without = (
        load(find_model(save_tiny("llama", tmp_path / "a"))),
        load(find_model(save_tiny("qwen2", tmp_path / "b"))),
    )
    text = "नमस्ते abc"
    assert prepare(with_bos, text, ENGLISH).scored_bytes == len(text.encode())
    first = without.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"][0]
    assert prepare(without, text, ENGLISH).scored_bytes == len(text[first[1] :].encode())


def test_sliding_windows_score_every_token_once_with_half_a_window_of_context(tmp_path):
    model = load(find_model(save_tiny("llama", tmp_path)))
    text = " ".join(TEXTS * 6)
    ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    window = 32
    sequences = prepare(model, text, ENGLISH, window=window).sequences
    assert functools.reduce(operator.iadd, (s.targets for s in sequences), []) == ids
    assert all(len(s.inputs) <= window for s in sequences)
    assert all(s.positions[0] + 1 >= window // 2 for s in sequences[1:])
    for s in sequences:
        assert [s.inputs[p + 1] for p in s.positions] == s.targets


def test_a_wide_window_changes_nothing(tmp_path):
    original, quantized = pair("llama", tmp_path)
    plain = score(original, quantized, [prepare(original, TEXTS[1], ENGLISH)])
    wide = score(original, quantized, [prepare(original, TEXTS[1], ENGLISH, window=100)])
    assert plain.original_nll == pytest.approx(wide.original_nll)


@pytest.mark.parametrize("window", [3, 4096])
def test_a_window_out_of_range(tmp_path, window):
    model = load(find_model(save_tiny("gpt2", tmp_path)))
    with pytest.raises(BadOption, match="out of range"):
        prepare(model, "text", ENGLISH, window=window)


def test_masked_words_hide_their_own_rest(tmp_path):
    model = load(find_model(save_tiny("bert", tmp_path)))
    passage = prepare(model, "unbelievable weather", ENGLISH)
    ids = model.tokenizer("unbelievable weather", add_special_tokens=False)["input_ids"]
    assert [s.targets[0] for s in passage.sequences] == ids
    mask = model.tokenizer.mask_token_id
    words = model.tokenizer("unbelievable weather", add_special_tokens=False).word_ids(0)
    for k, s in enumerate(passage.sequences):
        hidden = [j for j, i in enumerate(s.inputs[1:-1]) if i == mask]
        assert hidden == [j for j in range(k, len(ids)) if words[j] == words[k]]


@pytest.mark.parametrize("length", [1, 2, 5, 40, 333])
def test_spans_are_disjoint_and_cover_their_share(length):
    import random

    for seed in range(20):
        spans = _spans(length, random.Random(seed))
        hidden = sum(b - a for a, b in spans)
        assert hidden == max(1, round(0.15 * length))
        assert all(0 <= a < b <= length for a, b in spans)
        assert all(first[1] < second[0] for first, second in itertools.pairwise(spans))


def test_corrupted_input_and_targets_make_up_the_text(tmp_path):
    model = load(find_model(save_tiny("mt5", tmp_path)))
    text = TEXTS[1]
    (sequence,) = prepare(model, text, ENGLISH).sequences
    ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    sentinels = {i for token, i in model.tokenizer.get_vocab().items() if token.startswith("<extra_id_")}
    visible = [i for i in sequence.inputs[:-1] if i not in sentinels]
    assert len(visible) + len(sequence.targets) == len(ids)
    assert sorted(visible + sequence.targets) == sorted(ids)
    assert prepare(model, text, ENGLISH).sequences == [sequence]


def test_chat_template_comes_before_the_text_and_is_not_scored(tmp_path):
    model = load(find_model(save_tiny("llama", tmp_path)))
    with pytest.raises(BadOption, match="no chat template"):
        prepare(model, "text", ENGLISH, chat=True)
    model.tokenizer.chat_template = "<s>user: {{ messages[0]['content'] }} assistant: "
    plain, chat = prepare(model, "text", ENGLISH).sequences[0], prepare(model, "text", ENGLISH, chat=True).sequences[0]
    assert chat.targets == plain.targets
    assert len(chat.inputs) > len(plain.inputs)


def test_passages_without_a_token_to_score(tmp_path):
    model = load(find_model(save_tiny("qwen2", tmp_path)))
    with pytest.raises(BrokenTexts, match="too short"):
        prepare_all(model, passages_of(("a",)))


def test_the_reference_model_serves_its_languages_and_no_others():
    model = load(find_model("reference"))
    test = read_split().test
    served = {code: measure(model, model, test[code].at(range(4)), MeasureOptions()) for code in ("eng", "tam", "amh")}
    assert [m.served for m in served.values()] == [True, True, False]
    english = served["eng"]
    assert sum(english.kl) == 0
    assert sum(english.agreed) == sum(english.tokens)
    assert 1 < sum(english.original_nll) / math.log(2) / sum(english.bytes) < 2.5


@pytest.fixture
def filled_up(tmp_path):
    """A model, and the same with rows for tokens that its tokenizer does not have."""
    folders = [save_tiny("llama", tmp_path / name) for name in ("plain", "filled")]
    tensors = load_file(folders[1] / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = torch.cat([tensors[name], torch.full((48, 32), 0.3)])
    save_file(tensors, folders[1] / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folders[1] / "config.json").read_text())
    (folders[1] / "config.json").write_text(json.dumps(config | {"vocab_size": 448}))
    return [load(find_model(folder)) for folder in folders]


def test_a_vocabulary_that_is_filled_up_makes_no_difference(filled_up):
    """Nothing is lost by rows that no text has, and none is gained by taking them away."""
    plain, filled = filled_up
    assert (plain.vocabulary, filled.vocabulary) == (400, 448)
    passages = prepare_all(plain, passages_of(TEXTS))
    for original, quantized in ((plain, filled), (filled, plain)):
        scores = score(original, quantized, passages)
        np.testing.assert_allclose(scores.original_nll, score(plain, plain, passages).original_nll, **CLOSE)
        np.testing.assert_allclose(scores.quantized_nll, scores.original_nll, **CLOSE)
        np.testing.assert_allclose(scores.kl, 0, atol=CLOSE["atol"])
        assert (scores.agreed == scores.tokens).all()


def test_a_tokenizer_with_more_tokens_than_embeddings_is_refused_where_a_text_needs_them(tmp_path):
    model = load(find_model(save_tiny("llama", tmp_path, vocab_size=300)))
    with pytest.raises(BrokenModel, match="300 tokens in its embeddings"):
        prepare_all(model, passages_of(TEXTS))


def test_a_model_that_takes_too_few_tokens(tmp_path):
    for architecture in ("llama", "bert"):
        model = load(find_model(save_tiny(architecture, tmp_path / architecture, max_position_embeddings=4)))
        with pytest.raises(BrokenModel, match="takes 4 tokens"):
            prepare_all(model, passages_of(TEXTS))
