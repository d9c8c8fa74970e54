"""LA-ACIQ: quantize multilingual language models so that no language pays for the others."""

from laaciq import reference
from laaciq.corpus import read_split, read_texts
from laaciq.errors import LaaciqError

__version__ = "0.1.0"

__all__ = ["LaaciqError", "__version__", "read_split", "read_texts", "reference"]
