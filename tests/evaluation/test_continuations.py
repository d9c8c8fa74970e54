"""What is counted in continuations, in pairs."""

import sys

import pytest

import laaciq
from laaciq.errors import MissingExtra
from laaciq.evaluation.continuations import Continuations, ContinuedPrompt, compare_continuations
from laaciq.report.generation_section import cells, sentences

TEXTS = laaciq.read_texts()


def continuations(code, originals, quantized):
    pairs = [ContinuedPrompt(prompt="…", original=a, quantized=b) for a, b in zip(originals, quantized, strict=True)]
    return Continuations(language=code, script=TEXTS[code].language.script, prompts=pairs)


def halves(code, count):
    return [text[len(text) // 2 :] for text in TEXTS[code].texts[:count]]


def test_drift_loops_and_repetition_are_counted_on_the_same_prompts():
    english, swahili = halves("eng", 10), halves("swa", 10)
    drifted = continuations("swa", swahili, [*english[:8], *swahili[8:]])
    looped = continuations("eng", english, ["na " * 20] * 7 + english[7:])
    first, second = compare_continuations([drifted, looped])
    assert (first.prompts, first.identical) == (10, 2)
    assert (first.same_language.lost, first.same_language.gained) == (8, 0)
    assert first.same_language.changed and not first.garbled.changed
    assert (second.garbled.lost, second.garbled.gained) == (0, 7)
    assert second.garbled.changed and second.garbled.p_corrected == pytest.approx(2 * second.garbled.p)
    assert second.repetition.difference.low > 0.3
    assert first.example == drifted.prompts[0]
    assert cells(second)[6:8] == ["0 → 70 %", "70 [22, 95]"]
    assert sentences([first, second]) == ["In the language: less in Swahili, English.", "Garbled: more in English."]


def test_a_language_that_the_identifier_does_not_know():
    hawaiian = Continuations(
        language="haw", script="Latin", prompts=[ContinuedPrompt(prompt="Aloha", original="mai kākou", quantized="mai")]
    )
    (result,) = compare_continuations([hawaiian])
    assert result.same_language is None and result.repetition.difference is None
    assert cells(result)[3:6] == ["?", "–", "–"]
    assert sentences([result])[-1] == "The identifier does not know Hawaiian."


def test_without_an_identifier_nothing_is_begun(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "py3langid", None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[generate\]'"):
        laaciq.run("/nowhere", generate=True, out=tmp_path / "run")
