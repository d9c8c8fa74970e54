import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laaciq.corpus import read_split
from laaciq.models import find_model, load
from laaciq.options import MeasureOptions
from laaciq.profiling import activations
from laaciq.profiling.activations import collect
from laaciq.profiling.effective import ColumnSums
from tests.tiny import ARCHITECTURES, save_tiny

ENGLISH = read_split().test["eng"]
OPTIONS = MeasureOptions()


def fractions(result):
    return result.norms / result.norms.sum()


def tiny(architecture, folder):
    return load(find_model(save_tiny(architecture, folder)), device="cpu")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_padding_and_batches_change_no_fraction(architecture, tmp_path, monkeypatch):
    model, passages = tiny(architecture, tmp_path), ENGLISH.at(range(6))
    together = collect(model, passages, OPTIONS)
    monkeypatch.setattr(activations, "batch_tokens", lambda model: 1)
    alone = collect(model, passages, OPTIONS)
    np.testing.assert_allclose(fractions(together), fractions(alone), atol=1e-5)
    np.testing.assert_allclose(together.passage_vectors, alone.passage_vectors, atol=1e-4)
    for name, squares in alone.input_square_sums.items():
        np.testing.assert_allclose(together.input_square_sums[name], squares, rtol=1e-4)


def test_more_of_the_same_text_changes_no_fraction(tmp_path):
    model = tiny("llama", tmp_path)
    once = collect(model, ENGLISH.at(range(4)), OPTIONS)
    thrice = collect(model, ENGLISH.at([0, 1, 2, 3] * 3), OPTIONS)
    np.testing.assert_allclose(fractions(once), fractions(thrice), atol=1e-5)
    assert thrice.tokens == 3 * once.tokens


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "bert", "mt5"])
def test_start_tokens_and_padding_do_not_count(architecture, tmp_path):
    model, passages = tiny(architecture, tmp_path), ENGLISH.at(range(3))
    result = collect(model, passages, OPTIONS)
    plain = sum(len(model.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in passages.texts)
    if architecture == "mt5":
        assert result.tokens < plain  # the decoder reads the corrupted spans alone
    else:
        # BERT's tiny version takes 128 tokens, two of them its own.
        assert result.tokens == min(
            plain, sum(min(126, n) for n in _lengths(model, passages)) if architecture == "bert" else plain
        )


def _lengths(model, passages):
    return [len(model.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in passages.texts]


def test_against_a_plain_pass(tmp_path):
    """Block norms, input moments and loss of one passage, computed by hand."""
    model = tiny("llama", tmp_path)
    result = collect(model, ENGLISH.at([0]), OPTIONS)
    ids = model.tokenizer(ENGLISH.texts[0], return_tensors="pt")["input_ids"]
    with torch.no_grad():
        # The last of the model's hidden states has gone through the final norm; block 0's output has not.
        states = model.module(ids, output_hidden_states=True)
        embedded = model.module.get_input_embeddings()(ids)
        entering = model.module.model.layers[0].input_layernorm(embedded)[0, 1:]
    assert result.norms[0] == pytest.approx(states.hidden_states[1][0, 1:].norm(dim=-1).mean().item(), rel=1e-5)
    name = "model.layers.0.self_attn.q_proj.weight"
    np.testing.assert_allclose(result.input_square_sums[name], entering.square().sum(0), rtol=1e-4)
    logs = states.logits[0, :-1].log_softmax(-1)
    assert result.nll == pytest.approx(-logs.gather(1, ids[0, 1:, None]).sum().item(), rel=1e-5)


def test_sinks_are_found_and_kept_out():
    norms = torch.ones(2, 1, 6)
    norms[1, 0, 2] = 50.0
    norms[0, 0, 5] = 1000.0
    mask = torch.tensor([[True, True, True, True, True, False]])
    assert activations._sinks(norms, mask).tolist() == [[False, False, True, False, False, False]]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 1000), st.sampled_from([torch.float32, torch.bfloat16]))
def test_effective_weights_against_scipy(rows, columns, seed, dtype):
    random = torch.Generator().manual_seed(seed)
    matrix = torch.randn(rows, columns, generator=random).pow(3).to(dtype)
    squares = torch.rand(columns, generator=random).double().numpy() + 0.01
    result = ColumnSums.of(matrix).effective(squares)
    direct = (matrix.double().numpy() * np.sqrt(squares)).ravel()
    # Raw moments cancel where the mean is large beside σ: half of the digits are left.
    assert result.sigma == pytest.approx(direct.std(), rel=1e-7, abs=1e-7 * np.abs(direct).max())
    if direct.std() > 1e-3 * np.abs(direct).max():
        assert result.kurtosis == pytest.approx(scipy.stats.kurtosis(direct), rel=1e-7, abs=1e-7)
