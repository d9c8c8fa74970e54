from pydantic import BaseModel

from laaciq.engine.run_folder import RunFolder
from laaciq.engine.store import MemoryStore, key_of


class Answer(BaseModel):
    value: int


def test_a_result_is_computed_once_for_a_key(tmp_path):
    in_memory = MemoryStore()
    for store in (lambda: RunFolder(tmp_path / "run", description={"command": "laaciq run"}), lambda: in_memory):
        assert not store().valid("a.json", "key")
        assert store().result("a.json", Answer, "key", lambda: Answer(value=1)).value == 1
        assert store().result("a.json", Answer, "key", lambda: Answer(value=2)).value == 1
        assert store().result("a.json", Answer, "other", lambda: Answer(value=3)).value == 3
        assert store().read("a.json", Answer).value == 3


def test_keys_follow_their_parts():
    assert key_of("a", {"x": 1, "y": 2}) == key_of("a", {"y": 2, "x": 1})
    assert key_of("a", 1) != key_of("a", 2)
