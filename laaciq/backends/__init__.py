"""Other people's quantization libraries behind one contract: dequantized weights, and the bits that they store for them."""
