"""Other quantization libraries behind one interface: dequantized weights, and the bits that the library stores for them."""

# The keys of `registry.BACKENDS`, for completion on TAB, which must not import torch. A test compares the two.
NAMES = (
    "autoround",
    "autoround-quick",
    "nf4",
    "bnb-int8",
    "gptqmodel",
    "hqq",
    "llamacpp",
    "llamacpp-plain",
    "llamacpp-q0",
    "llmcompressor-rtn",
    "llmcompressor-gptq",
    "llmcompressor-awq",
    "quanto",
    "torchao",
)
