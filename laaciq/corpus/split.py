"""Calibration, validation and test parts that never overlap and are the same on every machine.

Choices (clipping, weights, plans) are made on calibration and validation text. Reported results are measured on test text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from laaciq.corpus.texts import Passages, Texts
from laaciq.errors import BrokenTexts

CALIBRATION_SHARE = 0.4
# Of the calibration text.
VALIDATION_SHARE = 0.25


@dataclass(frozen=True)
class Split:
    calibration: Texts
    validation: Texts
    test: Texts

    def select(self, names: Sequence[str] | None) -> Split:
        return Split(self.calibration.select(names), self.validation.select(names), self.test.select(names))


def split(texts: Texts, *, calibration_share: float = CALIBRATION_SHARE, seed: int = 0) -> Split:
    """Calibration, validation and test text, split by document. Passages with equal text count as one document, so that no text is in two
    parts.
    """
    if not 0 <= calibration_share < 1:
        raise BrokenTexts(f"calibration share {calibration_share} is out of range; give a number from 0 up to below 1")
    calibration, test = _divide(texts, calibration_share, seed)
    return divide_calibration(calibration, test, seed=seed)


def divide_calibration(calibration: Texts, test: Texts, *, seed: int = 0) -> Split:
    """A split with the given `test`; a quarter of the calibration text becomes validation text."""
    validation, rest = _divide(calibration, VALIDATION_SHARE, seed + 1)
    return Split(calibration=rest, validation=validation, test=test)


def _divide(texts: Texts, share: float, seed: int) -> tuple[Texts, Texts]:
    """Two disjoint parts. The first has `share` of the documents of every language, rounded down."""
    if texts.parallel:
        shared = _first_part(list(texts.by_language.values()), share, seed)

        def first_part(passages: Passages) -> np.ndarray:
            return shared
    else:

        def first_part(passages: Passages) -> np.ndarray:
            return _first_part([passages], share, seed)

    return _taking(texts, first_part), _taking(texts, lambda passages: ~first_part(passages))


def _taking(texts: Texts, chosen: Callable[[Passages], np.ndarray]) -> Texts:
    parts = {code: p.at(np.flatnonzero(chosen(p)).tolist()) for code, p in texts.by_language.items()}
    return replace(texts, by_language=parts)


def _first_part(aligned: list[Passages], share: float, seed: int) -> np.ndarray:
    """Mask of the positions in the first part, for passages that are aligned with each other."""
    names = _group_names(aligned)
    order = sorted(set(names), key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())
    first = set(order[: int(share * len(order))])
    return np.array([name in first for name in names], dtype=bool)


def _group_names(aligned: list[Passages]) -> list[str]:
    """The name of the group of every position. Positions with the same document or, in any language, the same text are in one group."""
    # Imported here because it is slow, and reading texts does not need it.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(aligned[0])
    keys: dict[tuple[str, str], int] = {}
    links = []
    for passages in aligned:
        code = passages.language.code
        for position, (text, document) in enumerate(zip(passages.texts, passages.documents, strict=True)):
            for key in ((code, text), ("document", document)):
                links.append((position, count + keys.setdefault(key, len(keys))))
    rows, columns = zip(*links, strict=True) if links else ((), ())
    size = count + len(keys)
    graph = coo_array((np.ones(len(links)), (rows, columns)), shape=(size, size))
    groups = connected_components(graph, directed=False)[1][:count]
    names: dict[int, str] = {}
    for group, document in zip(groups, aligned[0].documents, strict=True):
        names[group] = min(names.get(group, document), document)
    return [names[group] for group in groups]
