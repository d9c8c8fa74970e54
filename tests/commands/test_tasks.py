import json

import pytest
import yaml

import laaciq
from laaciq.errors import OutputConflict


def test_a_task_for_every_language_in_the_harness_s_format(tmp_path):
    result = laaciq.tasks(tmp_path / "tasks", languages=["eng", "Swahili"])
    assert result.groups == {
        "laaciq_bits": ["laaciq_bits_eng", "laaciq_bits_swa"],
        "laaciq_order": ["laaciq_order_eng", "laaciq_order_swa"],
    }
    for group, members in result.groups.items():
        assert yaml.safe_load((tmp_path / f"tasks/{group}.yaml").read_text()) == {"group": group, "task": members}
        for name in members:
            task = yaml.safe_load((tmp_path / f"tasks/{name}.yaml").read_text())
            assert task["task"] == name
            assert (tmp_path / "tasks" / task["include"]).exists()
            with open(task["dataset_kwargs"]["data_files"]["test"]) as rows:
                rows_read = [json.loads(row) for row in rows]
            # Test text and nothing else: plans were chosen on the rest.
            assert [row["text"] for row in rows_read] == list(laaciq.read_split().test[name[-3:]].texts)


def test_replaced_on_request_and_nothing_else_is(tmp_path):
    laaciq.tasks(tmp_path / "tasks", languages=["eng"])
    with pytest.raises(OutputConflict, match="finished result"):
        laaciq.tasks(tmp_path / "tasks", languages=["swa"])
    laaciq.tasks(tmp_path / "tasks", languages=["swa"], overwrite=True)
    assert not (tmp_path / "tasks/eng.jsonl").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("")
    with pytest.raises(OutputConflict, match="did not write"):
        laaciq.tasks(tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine/thesis.txt").exists()
