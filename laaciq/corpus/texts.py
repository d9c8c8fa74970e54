"""Texts by language, in one form for every source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from laaciq.corpus.languages import Language, language
from laaciq.errors import BrokenTexts, UnknownLanguage


@dataclass(frozen=True)
class Passages:
    """Passages of one language with the document of each. Passages of one document are not independent."""

    language: Language
    texts: tuple[str, ...]
    documents: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.texts) != len(self.documents):
            raise BrokenTexts(
                f"{self.language.code}: {len(self.texts)} passages but {len(self.documents)} document ids; give one per passage"
            )

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def byte_count(self) -> int:
        return sum(len(text.encode()) for text in self.texts)

    def at(self, positions: Iterable[int]) -> Passages:
        chosen = list(positions)
        return replace(
            self, texts=tuple(self.texts[i] for i in chosen), documents=tuple(self.documents[i] for i in chosen)
        )

    def joined(self, other: Passages) -> Passages:
        return replace(self, texts=self.texts + other.texts, documents=self.documents + other.documents)

    def spread(self, most: int) -> Passages:
        """At most `most` passages, evenly spread over the text and so over the documents."""
        count = min(most, len(self))
        return self.at([number * len(self) // count for number in range(count)])


@dataclass(frozen=True)
class Texts:
    """Passages in several languages. `parallel`: passage k has the same content in every language. `sampled`: `spread` left passages out."""

    name: str
    by_language: Mapping[str, Passages]
    parallel: bool
    sampled: bool = False

    @property
    def languages(self) -> list[str]:
        return list(self.by_language)

    def __getitem__(self, code: str) -> Passages:
        return self.by_language[code]

    def select(self, names: Iterable[str] | None) -> Texts:
        """Only these languages, in this order; all if None. Takes any name that `language` takes."""
        if names is None:
            return self
        codes = list(dict.fromkeys(language(name).code for name in names))
        for code in codes:
            if code not in self.by_language:
                raise UnknownLanguage(
                    f"{self.name} has no text in {language(code).name} ({code}); it has {', '.join(self.languages)}"
                )
        return replace(self, by_language={code: self.by_language[code] for code in codes})

    def at(self, positions: Iterable[int]) -> Texts:
        """Only the passages at these positions, of every language."""
        chosen = list(positions)
        return replace(self, by_language={code: p.at(chosen) for code, p in self.by_language.items()})

    def joined(self, other: Texts) -> Texts:
        """These texts followed by another part of the same texts."""
        return replace(self, by_language={code: p.joined(other[code]) for code, p in self.by_language.items()})

    def spread(self, most: int) -> Texts:
        """At most `most` passages per language. Parallel passages stay aligned."""
        chosen = {code: p.spread(most) for code, p in self.by_language.items()}
        fewer = any(len(chosen[code]) < len(p) for code, p in self.by_language.items())
        return replace(self, by_language=chosen, sampled=self.sampled or fewer)

    @property
    def fingerprint(self) -> str:
        """A digest of all passages, document ids and alignment."""
        content = [self.parallel, [(code, p.texts, p.documents) for code, p in sorted(self.by_language.items())]]
        return hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).hexdigest()
