import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import laaciq
from laaciq.errors import BadOption, UnknownLanguage
from laaciq.quantization.layers import QuantizedLinear
from tests.tiny import save_tiny

LANGUAGES = ["eng", "swa", "hin"]
TEST = laaciq.read_split("builtin").test
# Longer than any table's first difference: tables of a random model change few of the first tokens.
GREEDY = {"do_sample": False, "max_new_tokens": 12}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("serving")
    model = save_tiny("llama", root / "model")
    # At groups of 16 a table costs one bit per weight: 3 bits are a table for each language.
    options = {"method": "adaptive", "bits": 3, "group_size": 16, "table_overhead": 3.0, "served_bound": 100}
    result = laaciq.quantize(model, out=root / "adaptive", languages=LANGUAGES, **options)
    assert result.plans.first.tables == [["eng"], ["swa"], ["hin"]]
    return root


def load(folder):
    model = AutoModelForCausalLM.from_pretrained(folder).eval().requires_grad_(False)
    return model, AutoTokenizer.from_pretrained(folder)


@pytest.fixture
def served(folder):
    return load(folder / "adaptive")


def prompts_in(*codes):
    """Beginnings of passages, each another one, of different lengths."""
    return [TEST[code].texts[k][: 60 + 5 * k] for k, code in enumerate(codes)]


def alone(model, tokenizer, prompt, code):
    """What the model's own generate makes of one prompt under a language's scales, or under the shared ones."""
    batch = tokenizer([prompt], return_tensors="pt")
    with model.language(code):
        output = model.generate(**batch, **GREEDY, pad_token_id=tokenizer.eos_token_id)
    return tokenizer.decode(output[0, batch["input_ids"].shape[1] :], skip_special_tokens=True)


def logits(model, tokenizer):
    with torch.no_grad():
        return model(tokenizer(prompts_in("swa"), return_tensors="pt")["input_ids"]).logits


def used_tables(model, monkeypatch):
    """The tables that generate switches to, in order."""
    used = []
    original = model.generate
    monkeypatch.setattr(model, "generate", lambda **kwargs: used.append(model.language.table) or original(**kwargs))
    return used


def test_a_mixed_batch_is_split_and_put_back_in_order(served):
    model, tokenizer = served
    codes = ["hin", "eng", "swa", "eng", "hin", "swa"]
    prompts = prompts_in(*codes)
    expected = [alone(model, tokenizer, prompt, code) for prompt, code in zip(prompts, codes, strict=True)]
    assert laaciq.generate(model, tokenizer, prompts, languages=codes, **GREEDY) == expected
    shared = [alone(model, tokenizer, prompt, None) for prompt in prompts]
    assert expected != shared


def test_one_language_for_all_prompts(served, monkeypatch):
    model, tokenizer = served
    used = used_tables(model, monkeypatch)
    texts = laaciq.generate(model, tokenizer, prompts_in("swa", "swa"), languages="Swahili", **GREEDY)
    assert len(texts) == 2
    assert used == [1]


def test_clear_prompts_get_the_table_of_their_language(served, monkeypatch):
    model, tokenizer = served
    used = used_tables(model, monkeypatch)
    codes = ["swa", "hin", "eng", "swa", "hin", "eng"]
    prompts = prompts_in(*codes)
    detected = laaciq.generate(model, tokenizer, prompts, **GREEDY)
    assert used == [1, 2, 0]
    assert detected == laaciq.generate(model, tokenizer, prompts, languages=codes, **GREEDY)


@pytest.mark.parametrize("prompt", ["12 + 30 =", *prompts_in("kat", "jpn")])
def test_what_has_no_table_uses_the_shared_scales(served, monkeypatch, prompt):
    model, tokenizer = served
    used = used_tables(model, monkeypatch)
    laaciq.generate(model, tokenizer, [prompt], **GREEDY)
    assert used == [None]


def test_what_looks_like_a_close_language_gets_its_table(tmp_path, monkeypatch):
    options = {"method": "adaptive", "group_size": 16, "table_overhead": 2.0, "served_bound": 100}
    laaciq.quantize(save_tiny("llama", tmp_path / "model"), out=tmp_path / "c", languages=["ind", "eng"], **options)
    model, tokenizer = load(tmp_path / "c")
    monkeypatch.setattr("laaciq.commands.generate.LanguageIdentifier.likeliest", lambda self, text: "msa")
    used = used_tables(model, monkeypatch)
    laaciq.generate(model, tokenizer, ["Selamat pagi"], **GREEDY)
    assert used == [0]


def test_a_declared_language_without_a_table(served):
    model, tokenizer = served
    with pytest.raises(UnknownLanguage, match="no table for kat: it has eng, swa, hin"):
        laaciq.generate(model, tokenizer, prompts_in("kat"), languages="Georgian")
    with pytest.raises(UnknownLanguage, match="eng, swa, hin"), model.language("kat"):
        pass


def test_a_language_too_few(served):
    model, tokenizer = served
    with pytest.raises(BadOption, match="2 languages for 3 prompts"):
        laaciq.generate(model, tokenizer, prompts_in("eng", "swa", "hin"), languages=["eng", "swa"])


def test_one_text_is_no_list_of_prompts(served):
    model, tokenizer = served
    with pytest.raises(BadOption, match="prompts must be a list"):
        laaciq.generate(model, tokenizer, "Habari ya asubuhi")


def test_a_model_that_is_not_ours(folder):
    model, tokenizer = load(folder / "model")
    with pytest.raises(BadOption, match="not loaded from a laaciq checkpoint"):
        laaciq.generate(model, tokenizer, ["Habari"])


def test_no_prompts(served):
    assert laaciq.generate(*served, []) == []


def test_a_checkpoint_without_tables_takes_any_language(folder):
    laaciq.quantize(folder / "model", out=folder / "plain", method="rtn", group_size=16)
    model, tokenizer = load(folder / "plain")
    prompts = prompts_in("swa", "kat")
    declared = laaciq.generate(model, tokenizer, prompts, languages=["swa", "kat"], **GREEDY)
    assert declared == laaciq.generate(model, tokenizer, prompts, **GREEDY)


# The switch itself


def test_a_language_changes_logits_within_its_block_only(served):
    model, tokenizer = served
    before = logits(model, tokenizer)
    with model.language("swa"):
        inside = logits(model, tokenizer)
        with model.language("hin"):
            nested = logits(model, tokenizer)
        assert torch.equal(logits(model, tokenizer), inside)
        with model.language(None):
            assert torch.equal(logits(model, tokenizer), before)
    assert not torch.equal(inside, before)
    assert not torch.equal(nested, inside)
    assert torch.equal(logits(model, tokenizer), before)


def test_after_an_exception_the_scales_are_what_they_were(served):
    model, tokenizer = served
    before = logits(model, tokenizer)
    with pytest.raises(ZeroDivisionError), model.language("swa"):
        raise ZeroDivisionError
    assert torch.equal(logits(model, tokenizer), before)


def test_a_switch_that_fails_half_way_is_undone(served, monkeypatch):
    model, tokenizer = served
    before = logits(model, tokenizer)
    last = [layer for layer in model.modules() if isinstance(layer, QuantizedLinear)][-1]
    original = last.use

    def fail(table):
        if table is not None:
            raise MemoryError
        original(table)

    monkeypatch.setattr(last, "use", fail)
    with pytest.raises(MemoryError), model.language("swa"):
        pass
    assert torch.equal(logits(model, tokenizer), before)


def test_layers_made_ready_while_generating_still_switch(served):
    """Another data type makes layers prepare again in the first pass, inside generate; so does another device."""
    model, tokenizer = served
    model.to(torch.float64)
    texts = [laaciq.generate(model, tokenizer, prompts_in(*LANGUAGES), **GREEDY) for _ in range(2)]
    assert texts[0] == texts[1]
    with torch.inference_mode():
        model.to(torch.float32)
        before = logits(model, tokenizer)
    with model.language("swa"):
        assert not torch.equal(logits(model, tokenizer), before)


@pytest.mark.parametrize("code", LANGUAGES)
def test_under_a_language_the_weights_are_its_tables(served, code):
    model, _ = served
    with model.language(code):
        for layer in model.modules():
            if isinstance(layer, QuantizedLinear):
                expected = layer.stored().dequantize(layer.plan, LANGUAGES.index(code))
                assert torch.equal(layer.weight, expected)
