from dataclasses import replace

import pytest

from laaciq import read_split
from laaciq.corpus.calibration_choice import calibrating
from laaciq.errors import BadOption, BrokenTexts


@pytest.fixture(scope="module")
def whole():
    return read_split("builtin").select(["eng", "swa", "hin"])


def test_one_language_or_all_that_are_measured(whole):
    test = whole.test.select(["swa", "hin"])
    assert calibrating("all", whole, test, seed=0).calibration.languages == ["swa", "hin"]
    for name in ("eng", "English"):
        found = calibrating(name, whole, test, seed=0)
        assert (found.calibration.languages, found.validation.languages) == (["eng"], ["eng"])
        assert found.test is test
        assert found.calibration["eng"] == whole.calibration["eng"]


def test_texts_of_the_user_never_overlap_with_the_test_text(whole, tmp_path):
    (tmp_path / "eng.txt").write_text("\n".join(f"Passage number {number}." for number in range(8)))
    found = calibrating(str(tmp_path), whole, whole.test, seed=0)
    read = set(found.calibration["eng"].texts) | set(found.validation["eng"].texts)
    assert len(read) == 8 and not set(found.calibration["eng"].texts) & set(found.validation["eng"].texts)
    (tmp_path / "swa.txt").write_text(whole.test["swa"].texts[3])
    with pytest.raises(BrokenTexts, match="a passage of swa in common"):
        calibrating(str(tmp_path), whole, whole.test, seed=0)
    # What is not measured may be calibrated on.
    calibrating(str(tmp_path), whole, replace(whole.test.select(["hin"])), seed=0)
    with pytest.raises(BadOption, match="no language of these texts and no text"):
        calibrating("nowhere/at/all", whole, whole.test, seed=0)
