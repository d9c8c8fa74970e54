"""The base class of results and options, immutable, in which an unknown field is an error; and types of their fields."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

# ISO 639-3.
LanguageCode = Annotated[str, Field(pattern="^[a-z]{3}$")]


class StrictModel(BaseModel):
    """A pydantic model that cannot be changed and accepts no unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)
