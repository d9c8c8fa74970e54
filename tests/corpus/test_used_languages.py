from pathlib import Path

from laaciq import reference
from laaciq.corpus import read_split
from laaciq.corpus.used_languages import used_languages


def test_the_reference_model_is_measured_on_the_languages_it_was_trained_on_and_four_others():
    used = used_languages(None, "builtin", reference.path())
    assert used == sorted(used)
    assert set(used) == set(reference.exposure()) | {"amh", "hau", "mya", "tel"}
    assert read_split("builtin").test.select(used).languages == used


def test_others_are_measured_on_all_languages_and_named_ones_are_used_everywhere():
    assert used_languages(None, "builtin", Path("/models/mine")) is None
    assert used_languages(None, "/texts/mine", reference.path()) is None
    assert used_languages(("nld", "eng"), "builtin", reference.path()) == ["nld", "eng"]
