"""Models: where they lie, loading them, and the parts that they are made of."""

from laaciq.models.anatomy import Anatomy, LinearLayer, TokenMatrix, dissect
from laaciq.models.folder import ModelFolder, find_model, stream_tensors
from laaciq.models.loading import LanguageModel, load

__all__ = [
    "Anatomy",
    "LanguageModel",
    "LinearLayer",
    "ModelFolder",
    "TokenMatrix",
    "dissect",
    "find_model",
    "load",
    "stream_tensors",
]
