"""Short texts on disk, so that tiny models are quick, and masked ones too."""

from collections.abc import Iterable
from pathlib import Path

import laaciq


def write_short_texts(folder: Path, codes: Iterable[str], *, letters: int = 40, passages: int = 20) -> Path:
    """The beginnings of the first built-in passages, one file per language."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = laaciq.read_texts()
    for code in codes:
        (folder / f"{code}.txt").write_text("\n".join(text[:letters] for text in whole[code].texts[:passages]))
    return folder
