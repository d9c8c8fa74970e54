"""All claims, in the order of the theory. A new claim is a file here and its name in this list."""

from laaciq.lab.claim import Claim
from laaciq.lab.claims import (
    bit_width,
    bounds,
    causal_graph,
    compressions,
    conditions,
    core,
    decoder_attention,
    do_tokens,
    exposure,
    gateway,
    held_out,
    kept_weights,
    loss_model,
    redundancy,
    screening,
    scripts,
    strategies,
    top_weights,
    training,
)

_FILES = (
    *(core, screening, decoder_attention, exposure, bit_width, strategies, bounds, loss_model, top_weights),
    *(kept_weights, gateway, scripts, redundancy, causal_graph, held_out),
    *(conditions, do_tokens, compressions, training),
)
CLAIMS: dict[str, Claim] = {claim.name: claim for file in _FILES for claim in file.CLAIMS}
