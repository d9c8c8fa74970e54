import struct

import pytest

import laaciq
from laaciq.errors import BrokenModel
from laaciq.models import find_model, load
from laaciq.models.gguf_header import read_gguf_header
from tests.tiny import save_tiny


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """A file of a tiny model."""
    folder = tmp_path_factory.mktemp("gguf")
    laaciq.quantize(
        save_tiny("llama", folder / "model"), out=folder / "checkpoint", method="rtn", bits=4, group_size=32
    )
    laaciq.export(folder / "checkpoint", format="gguf", out=folder / "out")
    return (folder / "out/model.gguf").read_bytes()


def test_what_the_file_says(content, tmp_path):
    (tmp_path / "model.gguf").write_bytes(content)
    header = read_gguf_header(tmp_path / "model.gguf")
    assert (header.architecture, header.blocks) == ("llama", 2)
    assert header.tensors["token_embd.weight"] == (400, 32)
    assert header.metadata["tokenizer.ggml.tokens"] == 400


def number(key, form, value):
    """The change of a number that follows its key and its type."""

    def change(content):
        at = content.index(key) + len(key) + 4
        return content[:at] + struct.pack(form, value) + content[at + struct.calcsize(form) :]

    return change


def at(place, form, value):
    return lambda content: content[:place] + struct.pack(form, value) + content[place + struct.calcsize(form) :]


def tensor_type(content):
    # After the name: the number of dimensions, two of them, the type.
    place = content.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 16
    return content[:place] + struct.pack("<I", 250) + content[place + 4 :]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda content: b"", "cannot be read|empty"),
        (lambda content: b"GGML" + content[4:], "does not begin with GGUF"),
        (at(4, "<I", 1), "version 1 of the format"),
        (lambda content: content[:100], "ends within its header"),
        (lambda content: content[:-5000], "cut short"),
        (at(8, "<Q", 2**60), "ends within its header|tensor|string"),
        (at(16, "<Q", 2**60), "ends within|key|type|string"),
        (at(24, "<Q", 2**60), "has a string of"),
        (
            number(b"layer_norm_rms_epsilon", "<f", float("nan")),
            "NaN or infinity for llama.attention.layer_norm_rms_epsilon",
        ),
        (number(b"llama.block_count", "<I", 10**6), "block_count 1000000"),
        (number(b"llama.block_count", "<I", 0), "block_count 0"),
        (lambda content: content.replace(b"general.architecture", b"general.arkhitecture"), "which architecture"),
        (
            lambda content: content.replace(b"llama.rope.dimension_count", b"llama.attention.head_count"),
            "has the key 'llama.attention.head_count' twice",
        ),
        (
            lambda content: content.replace(b"blk.1.attn_q.weight", b"blk.0.attn_q.weight"),
            "has the tensor 'blk.0.attn_q.weight' twice",
        ),
        (tensor_type, "the unknown type 250"),
    ],
)
def test_what_is_refused(content, tmp_path, change, says):
    path = tmp_path / "model.gguf"
    path.write_bytes(change(content))
    with pytest.raises(BrokenModel, match=says):
        read_gguf_header(path)
    with pytest.raises(BrokenModel):
        load(find_model(path))
