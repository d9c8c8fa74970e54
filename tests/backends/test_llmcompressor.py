import pytest

from laaciq.backends import llmcompressor
from laaciq.backends.registry import find_backend

pytest.importorskip("llmcompressor")


# Symmetric: a 16-bit scale for 128 weights; affine: a zero point of the codes' width too.
@pytest.mark.parametrize(
    ("method", "bits", "size"), [("RTN", 4, 4.125), ("RTN", 3, 3.125), ("GPTQ", 4, 4.125), ("AWQ", 4, 4.15625)]
)
def test_it_computes_what_the_library_computes(two_blocks, tokenizer, texts, method, bits, size):
    found, difference = llmcompressor.check(two_blocks, tokenizer, texts, method=method, bits=bits)
    assert difference < 1e-3
    # 3 bits are packed row by row into 32, with padding where a row does not fill them.
    assert found.bits_per_weight == pytest.approx(size, abs=0.02)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", ["RTN", "GPTQ", "AWQ"])
def test_shapes_that_its_groups_do_not_divide_are_left_alone(gemma, tokenizer, texts, method):
    found, difference = llmcompressor.check(gemma, tokenizer, texts, method=method, bits=4)
    assert difference < 1e-3
    left = [name for name in found.left_alone if ".layers." in name]
    assert left == [f"model.layers.{block}.mlp.down_proj.weight" for block in range(2)]


def test_round_to_nearest_reads_no_text(two_blocks, tokenizer):
    assert "no text read" in find_backend("llmcompressor-rtn").quantize(two_blocks, tokenizer, [], bits=4).settings
