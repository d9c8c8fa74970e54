import pytest

from laaciq.backends import llmcompressor
from tests.backends.agreement import bits_per_weight, logit_difference

pytest.importorskip("llmcompressor")


# Symmetric: a 16-bit scale per 128 weights; affine: a zero point with the bits of a code too.
@pytest.mark.parametrize(
    ("method", "bits", "size"), [("RTN", 4, 4.125), ("RTN", 3, 3.125), ("GPTQ", 4, 4.125), ("AWQ", 4, 4.15625)]
)
def test_it_computes_what_the_library_computes(two_blocks, tokenizer, texts, method, bits, size):
    result, library_model = llmcompressor.quantize_copy(two_blocks, tokenizer, texts, method, bits, "cpu")
    assert logit_difference(two_blocks, result, library_model, tokenizer, texts[0]) < 1e-3
    # 3 bits are packed row by row into 32, with padding where a row does not fill them.
    assert bits_per_weight(result) == pytest.approx(size, abs=0.02)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", ["RTN", "GPTQ", "AWQ"])
def test_shapes_that_its_groups_do_not_divide_are_left_alone(gemma, tokenizer, texts, method):
    result, library_model = llmcompressor.quantize_copy(gemma, tokenizer, texts, method, 4, "cpu")
    assert logit_difference(gemma, result, library_model, tokenizer, texts[0]) < 1e-3
    left = [name for name in result.left_alone if ".layers." in name]
    assert left == [f"model.layers.{block}.mlp.down_proj.weight" for block in range(2)]


def test_round_to_nearest_reads_no_text(two_blocks, tokenizer, texts):
    assert "no text read" in llmcompressor.quantize(two_blocks, tokenizer, texts, method="RTN", bits=4).settings
