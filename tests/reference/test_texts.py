"""Mechanical checks of the passages that were written for this project."""

import statistics
import unicodedata

import py3langid
import pytest

from laaciq import reference
from laaciq.corpus import language, read_split, read_texts
from laaciq.corpus.identification import letters_in_script

TEXTS = read_texts()


def test_enough_of_everything():
    parts = read_split()
    assert TEXTS.parallel
    assert len(TEXTS.languages) >= 52
    assert set(reference.exposure()) | {"amh", "hau", "tel", "mya"} <= set(TEXTS.languages)
    assert len(parts.calibration["eng"]) + len(parts.validation["eng"]) >= 24
    assert len(parts.test["eng"]) >= 56
    assert all(100 <= len(text) <= 350 for text in TEXTS["eng"].texts)


def test_topics_are_balanced_between_parts():
    parts = read_split()
    topics = {document.rpartition("-")[0] for document in parts.test["eng"].documents}
    assert len(topics) == 20
    assert topics >= {document.rpartition("-")[0] for document in parts.calibration["eng"].documents}


@pytest.mark.parametrize("code", TEXTS.languages)
def test_script_length_and_duplicates(code):
    texts = TEXTS[code].texts
    assert len(set(texts)) == len(texts)
    assert all(unicodedata.normalize("NFC", text) == text for text in texts)
    assert all(letters_in_script(text, language(code).script) >= 0.95 for text in texts)
    ratios = [len(text) / len(english) for text, english in zip(texts, TEXTS["eng"].texts, strict=True)]
    typical = statistics.median(ratios)
    # Wide enough for honest variation between passages, too narrow for a passage with a sentence missing.
    assert all(0.6 * typical <= ratio <= 1.5 * typical for ratio in ratios)


@pytest.mark.parametrize("code", TEXTS.languages)
def test_a_language_identifier_agrees(code):
    """On nearly every passage: an identifier errs now and then on 150 characters (Indonesian against Malay most)."""
    result = [language(py3langid.classify(text)[0]).code for text in TEXTS[code].texts]
    assert result.count(code) >= 0.9 * len(result)
