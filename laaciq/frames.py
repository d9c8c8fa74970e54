"""Result objects as DataFrames, for those who ask; pandas is optional."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laaciq.errors import MissingExtra

if TYPE_CHECKING:
    import pandas


def flat_frame(rows: list[dict[str, Any]]) -> pandas.DataFrame:
    """One row each; nested values become columns joined by dots."""
    try:
        import pandas
    except ImportError:
        raise MissingExtra("pandas is not installed: pip install 'laaciq[frames]'") from None
    return pandas.json_normalize(rows)
