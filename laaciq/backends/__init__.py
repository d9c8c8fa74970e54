"""Other people's quantization libraries behind one contract: dequantized weights, and the bits that they store for them."""

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
