import json

import pytest
from pydantic import BaseModel, ConfigDict

from laaciq.engine.input_files import Refusal
from laaciq.engine.json_input import check_object, parse_object, parse_record, parse_section
from laaciq.errors import BadOption

REFUSAL = Refusal(BadOption, "write it again")


class Sample(BaseModel):
    model_config = ConfigDict(extra="forbid")

    number: int
    pair: tuple[int, int] = (1, 2)
    share: float = 0.5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not valid JSON"),
        ('{"a": 1', "not valid JSON"),
        ("null", "holds null"),
        ("[]", "holds a list"),
        ("3", "holds a number"),
        ('"a"', "holds a string"),
        ("true", "holds true or false"),
        ('{"a": [{"b": NaN}]}', "NaN or infinity at a.0.b"),
        ('{"a": -Infinity}', "NaN or infinity at a"),
        ('{"a": 1e999}', "NaN or infinity at a"),
        ('{"a": 1' + "0" * 40 + "}", "an integer of 41 digits"),
        ('{"a": 1' + "0" * 5000 + "}", "not valid JSON|digits"),
        ('{"a": "\\ud800"}', "not valid JSON"),
        ("[" * 300 + "]" * 300, "not valid JSON"),
        ('{"a":' * 100_000, "not valid JSON"),
        ('{"a": {"b": 1, "b": 2}}', "has the entry 'b' twice"),
    ],
)
def test_what_is_refused(text, says):
    with pytest.raises(BadOption, match=rf"file\.json .*({says}).*: write it again"):
        parse_object(text, "file.json", REFUSAL)


def test_what_is_read():
    # The first is transformers' "no limit"; state-space models state the second.
    text = '{"model_max_length": 1000000000000000019884624838656, "time_step_limit": [0.0, Infinity], "emoji": "\\ud83d\\ude00"}'
    assert parse_object(text, "config.json", REFUSAL) == {
        "model_max_length": int(1e30),
        "time_step_limit": [0.0, float("inf")],
        "emoji": "😀",
    }


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({}, "number is missing"),
        ({"number": "3"}, "number should be a valid integer"),
        ({"number": 3.0}, "number should be a valid integer"),
        ({"number": True}, "number should be a valid integer"),
        ({"number": 3, "pair": [1]}, "pair.1 is missing"),
        ({"number": 3, "share": "0.5"}, "share should be a valid number"),
        ({"number": 3, "other": 1}, "other is not known"),
    ],
)
def test_records_are_strict(content, says):
    with pytest.raises(BadOption, match=rf"file\.json is not valid: {says}"):
        parse_record(json.dumps(content), Sample, "file.json", REFUSAL)
    with pytest.raises(BadOption, match=says):
        parse_section(content, Sample, "file.json", REFUSAL)


def test_a_record():
    assert parse_record('{"number": 3, "pair": [4, 5], "share": 1}', Sample, "", REFUSAL).pair == (4, 5)


def test_a_section_that_is_no_json():
    with pytest.raises(BadOption, match="JSON"):
        parse_section({"number": object()}, Sample, "config.json", REFUSAL)


@pytest.mark.parametrize("text", ["[]", "{", '{"a": NaN}', '{"a": "\\ud800"}', "[" * 1000])
def test_large_objects_are_well_formed(tmp_path, text):
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    with pytest.raises(BadOption, match=r"tokenizer\.json (is not valid JSON|holds no object)"):
        check_object(path, REFUSAL)
    path.write_text('{"a": 1}')
    check_object(path, REFUSAL)
