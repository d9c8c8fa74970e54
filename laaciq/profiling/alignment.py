"""Alignment A: how close a language's passages are to the same passages in English, block by block.

A passage's vector is the mean of a block's output over the passage's tokens, without special tokens and attention sinks. Each language's
mean is subtracted before vectors are compared: it reflects the language and what all texts share, and would dominate every cosine.
"""

from __future__ import annotations

import numpy as np

from laaciq.errors import BrokenTexts, UnknownLanguage
from laaciq.strict import StrictModel

# Centred vectors shorter than this share of the original ones are rounding errors: the block does not distinguish the passages.
_NOTHING = 1e-12


class Alignment(StrictModel):
    """Agreement of one language with the pivot, one entry per block. By chance `cosine` is about 0 and `retrieval` is 1 / `passages`.

    The pivot agrees with itself by definition (1 and 1): leave it out of statistics over languages.
    """

    language: str
    passages: int
    cosine: list[float]
    retrieval: list[float]


def alignment(vectors: dict[str, np.ndarray], pivot: str = "eng") -> list[Alignment]:
    """Alignment of every language with the pivot. `vectors[code]` has shape (blocks, passages, width), passages in the same order."""
    if pivot not in vectors:
        raise UnknownLanguage(f"no passages in {pivot} to align with: there are {', '.join(vectors) or 'none'}")
    shape = vectors[pivot].shape
    for code, passage_vectors in vectors.items():
        if passage_vectors.ndim != 3 or passage_vectors.shape != shape:
            raise BrokenTexts(
                f"{code} has vectors of shape {passage_vectors.shape} and {pivot} of {shape}: both need (blocks, passages, width), "
                f"with the same passages"
            )
    return [
        Alignment(
            language=code,
            passages=shape[1],
            cosine=[mean_centred_cosine(a, b) for a, b in zip(passage_vectors, vectors[pivot], strict=True)],
            retrieval=[retrieval_accuracy(a, b) for a, b in zip(passage_vectors, vectors[pivot], strict=True)],
        )
        for code, passage_vectors in vectors.items()
    ]


def mean_centred_cosine(a: np.ndarray, b: np.ndarray) -> float:
    """(1/n) Σ_k cos(a_k − ā, b_k − b̄) over n pairs of passages, the rows of a and b. A vector of length 0 counts as cosine 0.

    Unchanged by any offset and any positive scale of either language, and by a rotation of both. For unrelated vectors 0 on average,
    with a standard deviation of about 1/√(n·w), w the effective width (participation ratio) of the representations.
    """
    return float((_directions(a, b) * _directions(b, a)).sum(1).mean())


def retrieval_accuracy(a: np.ndarray, b: np.ndarray) -> float:
    """Share of passages whose nearest passage in the other language, by centred cosine, is their translation; both directions averaged.

    Of k passages that are equally near, each counts 1/k. By chance 1/n, so that values from different numbers of passages do not compare.
    """
    similarity = _directions(a, b) @ _directions(b, a).T
    return float((_translation_is_nearest(similarity) + _translation_is_nearest(similarity.T)) / 2)


def _translation_is_nearest(similarity: np.ndarray) -> float:
    nearest = similarity == similarity.max(1, keepdims=True)
    return float((nearest.diagonal() / nearest.sum(1)).mean())


def _directions(vectors: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Rows of length 1 after the mean is removed; rows of zeros where nothing is left."""
    if vectors.ndim != 2 or vectors.shape != other.shape or len(vectors) < 2:
        raise BrokenTexts(
            f"cannot align vectors of shapes {vectors.shape} and {other.shape}: give two arrays of (passages, width), "
            f"of the same shape, with at least two passages"
        )
    whole = vectors.astype(np.float64)
    centred = whole - whole.mean(0)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    something = length > _NOTHING * np.linalg.norm(whole, axis=1).max()
    return np.divide(centred, length, out=np.zeros_like(centred), where=something)
