import pytest

from laaciq.engine.input_files import Refusal
from laaciq.engine.yaml_input import parse_mapping
from laaciq.errors import BadOption

REFUSAL = Refusal(BadOption, "write it again")
# Each line holds the one before it nine times: written out, the last has ten million entries.
BOMB = "a: &a [x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1, 2]", "does not map names to values"),
        ("text", "does not map names to values"),
        ("3: bits", "does not map names to values"),
        ("bits: 3\nbits: 4", "'bits' is given twice"),
        (BOMB, "aliases are not allowed"),
        ("bits: &a [*a]", "aliases are not allowed"),
        ("bits: " + "[" * 5000, "nested deeper"),
        ("bits: !!python/object/apply:os.system [x]", "not valid YAML"),
        ("bits: 2020-99-99", "not valid YAML"),
        ("bits: \x01", "not valid YAML"),
        ("a: 1\n---\na: 2", "not valid YAML"),
        ('"\\ud800": 1', "not valid YAML|does not map"),
    ],
)
def test_what_is_refused(text, says):
    with pytest.raises(BadOption, match=rf"(?s)recipe .*({says}).*: write it again"):
        parse_mapping(text, "recipe", REFUSAL)


def test_what_is_read():
    assert parse_mapping("", "recipe", REFUSAL) == {}
    assert parse_mapping("bits: 3\nlanguages: [eng, swa]\n", "recipe", REFUSAL) == {
        "bits": 3,
        "languages": ["eng", "swa"],
    }
