import logging
from dataclasses import replace

import pytest
import torch
from transformers import GenerationConfig

from laaciq.corpus import Passages, language, read_texts
from laaciq.corpus.identification import main_script
from laaciq.errors import BadOption, BrokenTexts
from laaciq.evaluation import generation
from laaciq.evaluation.continuations import Continuations
from laaciq.evaluation.generation import continue_prompts, default_prompts, prompt_of
from laaciq.models import find_model, load
from laaciq.scoring.sequences import start_tokens
from tests.tiny import save_tiny

TEXTS = read_texts()


def tokenized(original, quantized, prompts, new_tokens):
    return generation._tokenized(original, quantized, prompts, new_tokens, start_tokens(original.tokenizer))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return load(find_model(save_tiny("llama", tmp_path_factory.mktemp("llama"))), device="cpu")


@pytest.fixture(scope="module")
def other_model(tmp_path_factory):
    """Of the same architecture and tokenizer, with other weights."""
    return load(find_model(save_tiny("llama", tmp_path_factory.mktemp("twin"), seed=1)), device="cpu")


@pytest.mark.parametrize("code", TEXTS.languages)
def test_a_prompt_is_about_half_and_ends_with_a_word(code):
    script = TEXTS[code].language.script
    for text in TEXTS[code].texts:
        prompt = prompt_of(text, script)
        assert text.startswith(prompt)
        assert len(text) / 4 - 1 <= len(prompt) <= len(text) / 2 + 5
        if script not in generation.UNSPACED:
            assert text[len(prompt)] == " "


def test_prompts_of_odd_texts():
    assert prompt_of("a", "Latin") == "a"
    assert prompt_of("Donaudampfschifffahrt", "Latin") == "Donaudampf"
    assert prompt_of("กก่ก", "Thai") == "กก่"
    assert prompt_of("a bbbbbbbbbbbbbbbbbbbb", "Latin") == "a bbbbbbbbb"


@pytest.mark.parametrize("code", ["eng", "hin"])
def test_both_models_continue_the_same_prompts(tiny, other_model, code):
    steps = []
    options = {"prompts": 9, "new_tokens": 12}
    result = continue_prompts(tiny, other_model, TEXTS[code], **options, advance=steps.append)
    assert (result.language, len(result.prompts), sum(steps)) == (code, 9, 9)
    assert all(any(text.startswith(pair.prompt) for text in TEXTS[code].texts) for pair in result.prompts)
    assert any(pair.original != pair.quantized for pair in result.prompts)
    assert Continuations.model_validate_json(result.model_dump_json()) == result
    assert continue_prompts(tiny, other_model, TEXTS[code], **options) == result
    itself = continue_prompts(tiny, tiny, TEXTS[code], **options)
    assert [pair.quantized for pair in itself.prompts] == [pair.original for pair in result.prompts]


def test_a_chat_model_answers_in_its_template(tiny, monkeypatch):
    """The prompt begins the answer, so it stands at the end."""
    seen = []
    monkeypatch.setattr(tiny.tokenizer, "chat_template", "[{{ messages[0]['content'] }}]", raising=False)
    real = generation._continuations

    def spy(model, prompts, original, new_tokens):
        seen.extend(tiny.tokenizer.decode(prompt) for prompt in prompts)
        return real(model, prompts, original, new_tokens)

    monkeypatch.setattr(generation, "_continuations", spy)
    result = continue_prompts(tiny, tiny, TEXTS["eng"], prompts=1, new_tokens=2, chat=True)
    assert "[Write a short passage in English.]" in seen[0]
    assert seen[0].endswith(result.prompts[0].prompt[-10:])


def test_fewer_passages_than_prompts(tiny):
    assert len(continue_prompts(tiny, tiny, TEXTS["eng"].at([3, 5]), prompts=8, new_tokens=2).prompts) == 2


def test_an_accelerator_continues_a_hundred_prompts():
    assert (default_prompts("cuda"), default_prompts("cpu")) == (100, 16)


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "opt"])
def test_company_in_the_batch_changes_nothing(tmp_path, architecture):
    """Rotary, learned and offset positions: each would show if padding counted as tokens."""
    model = load(find_model(save_tiny(architecture, tmp_path)), device="cpu")
    prompts = [text[:size] for text, size in zip(TEXTS["eng"].texts, (8, 30, 90, 50), strict=False)]
    prompts_as_tokens = tokenized(model, model, prompts, 16)
    assert len({len(prompt) for prompt in prompts_as_tokens}) > 2
    alone = [generation._continuations(model, [prompt], model, 16)[0] for prompt in prompts_as_tokens]
    assert generation._continuations(model, prompts_as_tokens, model, 16) == alone
    assert len(set(alone)) > 1


def test_it_is_the_models_most_likely_continuation(tiny):
    """By hand: the largest logit, again and again."""
    [prompt] = tokenized(tiny, tiny, ["The bread"], 10)
    ids = list(prompt)
    for _ in range(10):
        ids.append(int(tiny.module(torch.tensor([ids])).logits[0, -1].argmax()))
    assert tiny.tokenizer.eos_token_id not in ids
    expected = tiny.tokenizer.decode(ids[len(prompt) :]).strip()
    assert generation._continuations(tiny, [prompt], tiny, 10) == [expected]


def test_an_end_token_ends_and_nothing_is_forced(tiny, monkeypatch):
    prompts_as_tokens = tokenized(tiny, tiny, ["The bread", "When the"], 10)
    whole = generation._continuations(tiny, prompts_as_tokens, tiny, 10)
    first = tiny.module.generate(
        torch.tensor(prompts_as_tokens[:1]), do_sample=False, max_new_tokens=1, pad_token_id=0
    )[0, -1]
    monkeypatch.setattr(tiny.module, "generation_config", GenerationConfig(eos_token_id=[int(first), 399]))
    ended = generation._continuations(tiny, prompts_as_tokens, tiny, 10)
    assert ended[0] == ""
    assert whole[1].startswith(ended[1])


def test_settings_of_the_checkpoint_are_set_aside_silently(tiny, monkeypatch, caplog, capfd):
    plain = continue_prompts(tiny, tiny, TEXTS["eng"], prompts=2, new_tokens=12)
    settings = GenerationConfig(do_sample=True, temperature=0.6, top_p=0.9, repetition_penalty=5.0, eos_token_id=2)
    monkeypatch.setattr(tiny.module, "generation_config", settings)
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    assert continue_prompts(tiny, tiny, TEXTS["eng"], prompts=2, new_tokens=12) == plain
    assert tiny.module.generation_config is settings
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_a_long_prompt_keeps_its_end(tiny):
    text = " ".join(TEXTS["hin"].texts)
    [prompt] = tokenized(tiny, tiny, [text], 48)
    assert len(prompt) + 48 == tiny.longest
    assert prompt[0] == tiny.tokenizer.bos_token_id
    assert prompt[1:] == tiny.tokenizer(text, add_special_tokens=False)["input_ids"][-len(prompt) + 1 :]
    with pytest.raises(BadOption, match="no room"):
        continue_prompts(tiny, tiny, TEXTS["eng"], new_tokens=128)


def test_text_in_a_language_s_other_script(tiny):
    """Serbian is Cyrillic to CLDR: text in Latin letters must not make every continuation look garbled."""
    latin = "Ako hleb ne naraste, u kuhinji je verovatno previše hladno. Stavite činiju blizu šporeta."
    assert main_script(latin, language("srp").script).upper() == "LATIN"
    assert main_script("Ако хлеб не нарасте", language("srp").script) == "Cyrillic"
    assert continue_prompts(tiny, tiny, Passages(language("srp"), (latin,), ("d",)), new_tokens=2).script == "LATIN"


def test_only_causal_models_continue(tmp_path, tiny):
    other = load(find_model(save_tiny("mt5", tmp_path)), device="cpu")
    for pair in ((other, other), (tiny, other)):
        with pytest.raises(BadOption, match=r"encoder-decoder.*--generate"):
            continue_prompts(*pair, TEXTS["eng"])
    with pytest.raises(BadOption, match="masked"):
        continue_prompts(replace(tiny, kind="masked"), tiny, TEXTS["eng"])


def test_bad_options(tiny):
    with pytest.raises(BadOption, match="at least 1"):
        continue_prompts(tiny, tiny, TEXTS["eng"], prompts=0)
    with pytest.raises(BadOption, match="at least 1"):
        continue_prompts(tiny, tiny, TEXTS["eng"], new_tokens=0)
    with pytest.raises(BrokenTexts, match="no passage in English"):
        continue_prompts(tiny, tiny, Passages(language("eng"), (), ()))
