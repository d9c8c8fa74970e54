"""Texts by language: reading, language identification, and the split into calibration, validation and test."""

from laaciq.corpus.languages import Language, language
from laaciq.corpus.sources import read_split, read_texts
from laaciq.corpus.split import Split, split
from laaciq.corpus.texts import Passages, Texts

__all__ = ["Language", "Passages", "Split", "Texts", "language", "read_split", "read_texts", "split"]
