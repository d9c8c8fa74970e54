"""Result objects as DataFrames, for those who ask; pandas is optional."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laaciq.errors import MissingExtra, install_hint

if TYPE_CHECKING:
    import pandas


def flat_frame(rows: list[dict[str, Any]]) -> pandas.DataFrame:
    """One row each; nested values become columns joined by dots."""
    try:
        import pandas
    except ImportError:
        raise MissingExtra(f"pandas is not installed: {install_hint('frames')}") from None
    return pandas.json_normalize(rows)
