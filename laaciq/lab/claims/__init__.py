"""All claims, in the order of the theory. A new claim is a file here and its name in this list."""

from laaciq.lab.claim import Claim
from laaciq.lab.claims import compressions, conditions, core, do_tokens, screening, top_weights, training

_FILES = (core, screening, top_weights, conditions, do_tokens, compressions, training)
CLAIMS: dict[str, Claim] = {claim.name: claim for file in _FILES for claim in file.CLAIMS}
