import pytest

from laaciq.backends import hqq
from laaciq.backends.registry import find_backend

pytest.importorskip("hqq")


# Ten codes of 3 bits are packed into 32; scale and zero point take 16 bits each for 64 weights.
@pytest.mark.parametrize(("bits", "size"), [(4, 4.5), (3, 3.7), (8, 8.5)])
def test_it_computes_what_the_library_computes(two_blocks, tokenizer, texts, bits, size):
    found, difference = hqq.check(two_blocks, tokenizer, texts, bits=bits)
    assert difference < 1e-3
    # Rows that fill no 32 bits are padded.
    assert found.bits_per_weight == pytest.approx(size, abs=0.02)
    assert found.left_alone == ["model.embed_tokens.weight"]


def test_the_layers_of_gpt2_that_it_passes_over_are_named(gpt2):
    with pytest.warns(UserWarning, match="left 8 of 8 linear layers alone"):
        found = find_backend("hqq").quantize(*gpt2, [], bits=4)
    assert not found.weights
