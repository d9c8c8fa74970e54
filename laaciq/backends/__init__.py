"""Other quantization libraries behind one interface: dequantized weights, and the bits that the library stores for them."""
