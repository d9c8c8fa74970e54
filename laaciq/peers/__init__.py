"""Methods side by side: other people's libraries and ours, on the same texts, with size counted the same way."""

from laaciq.peers.results import Comparison, Made, Row

__all__ = ["Comparison", "Made", "Row"]
