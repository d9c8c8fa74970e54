import gguf
import pytest

import laaciq
from laaciq.errors import BadOption
from tests.tiny import save_tiny

SHORT = {"languages": ["eng", "swa"], "passages": 3, "served_bound": 100.0}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny("llama", tmp_path_factory.mktemp("model"), hidden_size=64, intermediate_size=96)


def quantize(model, out, **options):
    laaciq.quantize(model, out=out, **{"method": "rtn", "group_size": 32, **options})
    return out


def test_an_export_is_a_file_of_our_codes(model, tmp_path):
    result = laaciq.export(quantize(model, tmp_path / "q"), format="gguf", out=tmp_path / "out")
    assert result.layouts["Q4_0"] == 14
    assert result.folded == result.notes == []
    assert result.bytes_after == (tmp_path / "out/model.gguf").stat().st_size
    types = [tensor.tensor_type.name for tensor in gguf.GGUFReader(tmp_path / "out/model.gguf").tensors]
    assert types.count("Q4_0") == 14


def test_rounded_offsets_are_said(model, tmp_path):
    result = laaciq.export(quantize(model, tmp_path / "q", symmetric=False), format="gguf", out=tmp_path / "out")
    assert result.layouts["Q4_1"] == 14
    assert "rounded to float16" in result.notes[0]


def test_what_blocks_cannot_carry_is_refused_or_folded(model, tmp_path):
    checkpoint = quantize(model, tmp_path / "q", method="mse", keep=1.0, protect=("1",), protect_bits=8)
    with pytest.raises(BadOption, match="kept in 16 bits"):
        laaciq.export(checkpoint, format="gguf", out=tmp_path / "out")
    with pytest.raises(BadOption, match="can carry nothing"):
        laaciq.export(checkpoint, format="gguf", out=tmp_path / "out", fold=True, against=model, **SHORT)
    grouped = quantize(model, tmp_path / "g", group_size=64)
    result = laaciq.export(grouped, format="gguf", out=tmp_path / "out", fold=True, against=model, **SHORT)
    # Rows of 96 inputs end in a group of 32; groups of 64 are two blocks of 32.
    assert not result.folded
