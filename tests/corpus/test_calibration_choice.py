import pytest

from laaciq import read_split
from laaciq.corpus.calibration_choice import calibration_split
from laaciq.errors import BadOption, BrokenTexts


@pytest.fixture(scope="module")
def whole():
    return read_split("builtin").select(["eng", "swa", "hin"])


def test_one_language_or_all_that_are_measured(whole):
    test = whole.test.select(["swa", "hin"])
    assert calibration_split("all", whole, test, seed=0).calibration.languages == ["swa", "hin"]
    for name in ("eng", "English"):
        split = calibration_split(name, whole, test, seed=0)
        assert (split.calibration.languages, split.validation.languages) == (["eng"], ["eng"])
        assert split.test is test
        assert split.calibration["eng"] == whole.calibration["eng"]


def test_texts_of_the_user_never_overlap_with_the_test_text(whole, tmp_path):
    (tmp_path / "eng.txt").write_text("\n".join(f"Passage number {number}." for number in range(8)))
    split = calibration_split(str(tmp_path), whole, whole.test, seed=0)
    read = set(split.calibration["eng"].texts) | set(split.validation["eng"].texts)
    assert len(read) == 8 and not set(split.calibration["eng"].texts) & set(split.validation["eng"].texts)
    (tmp_path / "swa.txt").write_text(whole.test["swa"].texts[3])
    with pytest.raises(BrokenTexts, match="share a passage in swa"):
        calibration_split(str(tmp_path), whole, whole.test, seed=0)
    # Calibration may use a language that is not measured.
    calibration_split(str(tmp_path), whole, whole.test.select(["hin"]), seed=0)
    with pytest.raises(BadOption, match="neither a language of these texts nor a text source"):
        calibration_split("nowhere/at/all", whole, whole.test, seed=0)
