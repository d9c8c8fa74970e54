import pytest
from pydantic import BaseModel

from laaciq.engine.progress import Progress
from laaciq.engine.whole_output import write_whole
from laaciq.errors import OutputConflict


class Answer(BaseModel):
    value: int


class Recorded(Progress):
    def __init__(self):
        self.sentences = []

    def say(self, text):
        self.sentences.append(text)


def written(out, value, *, key="key", overwrite=False, progress=None):
    def fill(folder, parts):
        (folder / "sub").mkdir()
        (folder / "sub/config.json").write_text(str(value))
        return Answer(value=value)

    options = {"command": "laaciq quantize", "key": key, "overwrite": overwrite, "progress": progress or Progress()}
    return write_whole(out, Answer, fill, **options).value


def test_the_same_again_is_read_and_another_result_is_replaced_only_on_request(tmp_path):
    out, progress = tmp_path / "out", Recorded()
    assert written(out, 1) == 1
    assert written(out, 2, progress=progress) == 1
    assert progress.sentences == [f"{out} is up to date; nothing is computed again."]
    with pytest.raises(OutputConflict, match=r"finished result.*--overwrite"):
        written(out, 2, key="other")
    assert (out / "sub/config.json").read_text() == "1"
    assert written(out, 2, key="other", overwrite=True) == 2
    assert (out / "sub/config.json").read_text() == "2"


@pytest.mark.parametrize("damage", ["edited", "removed"])
def test_a_result_that_was_changed_is_not_up_to_date(tmp_path, damage):
    written(tmp_path / "out", 1)
    path = tmp_path / "out/sub/config.json"
    path.unlink() if damage == "removed" else path.write_text("edited")
    with pytest.raises(OutputConflict, match="finished result"):
        written(tmp_path / "out", 1)
    assert written(tmp_path / "out", 1, overwrite=True) == 1
    assert path.read_text() == "1"


def test_parts_stay_until_the_output_is_complete(tmp_path):
    found = []

    def fill(folder, parts):
        found.append(parts.exists())
        parts.mkdir(exist_ok=True)
        (folder / "config.json").write_text("")
        if len(found) == 1:
            raise KeyboardInterrupt
        return Answer(value=1)

    options = {"command": "laaciq quantize", "key": "", "overwrite": False, "progress": Progress()}
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "out", Answer, fill, **options)
    assert not (tmp_path / "out/config.json").exists()
    write_whole(tmp_path / "out", Answer, fill, **options)
    assert found == [False, True]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"config.json", ".laaciq-files", ".laaciq-result"}
