"""The entries of config.json that this package reads, and those that decide how much transformers builds before it reads any weight."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from laaciq.engine.input_files import Refusal
from laaciq.engine.json_input import parse_section, read_object
from laaciq.errors import BrokenModel

CONFIG = "config.json"
COPY_AGAIN = Refusal(BrokenModel, "the model is half-written or damaged; copy it again")
# No model has more blocks, unless its files have as many tensors.
_MOST_BLOCKS = 256

_Count = Annotated[int, Field(ge=1)]


class ModelConfiguration(BaseModel):
    """config.json, or its part on the text model. Other entries are for transformers, which checks them."""

    model_config = ConfigDict(extra="allow", frozen=True)

    model_type: str | None = None
    architectures: list[str] | None = None
    quantization_config: dict[str, Any] | None = None
    vocab_size: _Count | None = None
    hidden_size: _Count | None = None
    num_hidden_layers: _Count | None = None
    n_layer: _Count | None = None
    num_layers: _Count | None = None
    encoder_layers: _Count | None = None
    decoder_layers: _Count | None = None
    text_config: ModelConfiguration | None = None

    @property
    def blocks(self) -> int:
        """The largest number of blocks in any entry; 0 if there is none."""
        stated = (self.num_hidden_layers, self.n_layer, self.num_layers, self.encoder_layers, self.decoder_layers)
        inner = 0 if self.text_config is None else self.text_config.blocks
        return max(inner, *(count or 0 for count in stated))


def read_configuration(folder: Path) -> ModelConfiguration:
    path = folder / CONFIG
    content = read_object(path, COPY_AGAIN, within=folder)
    return parse_section(content, ModelConfiguration, str(path), COPY_AGAIN)


def require_blocks(stated: int, tensors: int, name: str) -> None:
    """Raise an error if there are more blocks than tensors in the files, before transformers builds them."""
    if stated > max(tensors, _MOST_BLOCKS):
        raise COPY_AGAIN.of(name, f"is configured for {stated} blocks, and its files hold {tensors} tensors")
