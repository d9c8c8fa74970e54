"""Models: finding their files, loading them, and the parts that they consist of."""

from typing import TYPE_CHECKING

from laaciq.lazy import lazy_names

if TYPE_CHECKING:
    from laaciq.models.anatomy import Anatomy, LinearLayer, TokenMatrix, dissect
    from laaciq.models.folder import ModelFolder, find_model
    from laaciq.models.loading import LanguageModel, load
    from laaciq.models.safetensors_files import stream_tensors

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

__getattr__ = lazy_names(
    __name__,
    dict.fromkeys(("Anatomy", "LinearLayer", "TokenMatrix", "dissect"), "laaciq.models.anatomy")
    | dict.fromkeys(("ModelFolder", "find_model"), "laaciq.models.folder")
    | dict.fromkeys(("LanguageModel", "load"), "laaciq.models.loading")
    | {"stream_tensors": "laaciq.models.safetensors_files"},
)
