"""The base class of results and options: immutable, and an unknown field is an error."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """A pydantic model that cannot be changed and accepts no unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)
