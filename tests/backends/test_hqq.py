import pytest

from laaciq.backends import hqq
from tests.backends.agreement import bits_per_weight, logit_difference

pytest.importorskip("hqq")


# Ten codes of 3 bits are packed into 32; scale and zero point take 16 bits each for 64 weights.
@pytest.mark.parametrize(("bits", "size"), [(4, 4.5), (3, 3.7), (8, 8.5)])
def test_it_computes_what_the_library_computes(two_blocks, tokenizer, texts, bits, size):
    result, library_model = hqq.quantize_copy(two_blocks, bits, "cpu")
    assert logit_difference(two_blocks, result, library_model, tokenizer, texts[0]) < 1e-3
    # Rows that do not fill 32 bits are padded.
    assert bits_per_weight(result) == pytest.approx(size, abs=0.02)
    assert result.left_alone == ["model.embed_tokens.weight"]
