"""People compare continuations without knowing which model wrote them; their preferences, with intervals.

A pair is shown as A and B in random order, and a key that raters do not see says which is the original's. Every pair counts once: if several
people rated it, by their majority.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Literal, Self

from pydantic import Field, model_validator

from laaciq.corpus.languages import language
from laaciq.engine.display import Displayed
from laaciq.evaluation.continuations import Continuations
from laaciq.stats.estimate import Estimate
from laaciq.stats.mcnemar import mcnemar
from laaciq.stats.multiplicity import benjamini_hochberg
from laaciq.stats.paired_shares import difference_of_shares, share
from laaciq.strict import LanguageCode, StrictModel

Side = Literal["A", "B"]
Choice = Literal["A", "B", "tie"]
Preferred = Literal["original", "quantized", "tie"]


class BlindPair(StrictModel):
    """What a rater sees of one pair."""

    item: str
    language: LanguageCode
    prompt: str
    A: str
    B: str


class KeyEntry(StrictModel):
    """Which side of a pair the original wrote."""

    item: str = Field(min_length=1)
    language: LanguageCode
    original: Side


class RatingKey(StrictModel):
    """What raters must not see. `identical` counts, by language, the prompts that both models continue alike, which are not shown."""

    version: Literal[1] = 1
    original: str
    quantized: str
    identical: dict[LanguageCode, int]
    pairs: list[KeyEntry] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len({entry.item for entry in self.pairs}) < len(self.pairs):
            raise ValueError("a pair is there twice")
        return self


class Preference(StrictModel):
    """What people prefer in one language, or in all if `language` is None.

    Shares of pairs have Wilson's intervals. `net` is the share that prefers the original minus the share that prefers the quantized model, with
    Bonett and Price's interval. `p` is that of the sign test (mid-p) on the pairs that are no ties, `p_corrected` the same after Benjamini and
    Hochberg's correction for the number of languages.
    """

    language: LanguageCode | None
    name: str
    raters: int
    pairs: int
    original: Estimate
    quantized: Estimate
    tie: Estimate
    net: Estimate
    p: float
    p_corrected: float


class Ratings(Displayed, StrictModel):
    """Preferences by language and overall, for the models that the key names."""

    original: str
    quantized: str
    identical: dict[LanguageCode, int]
    languages: list[Preference]
    overall: Preference


def blind_pairs(all_continuations: Sequence[Continuations], *, pairs: int, seed: int) -> list[tuple[BlindPair, Side]]:
    """At most `pairs` prompts per language that the two models continue differently, in random order, with the side of the original."""
    made: list[tuple[BlindPair, Side]] = []
    for continuations in all_continuations:
        code, random = continuations.language, Random(f"{seed}:{continuations.language}")
        different = [prompt for prompt in continuations.prompts if prompt.original != prompt.quantized]
        for number, prompt in enumerate(random.sample(different, min(pairs, len(different))), start=1):
            side: Side = random.choice(("A", "B"))
            texts = (prompt.original, prompt.quantized) if side == "A" else (prompt.quantized, prompt.original)
            item = f"{code}-{number:03d}"
            made.append((BlindPair(item=item, language=code, prompt=prompt.prompt, A=texts[0], B=texts[1]), side))
    return made


def preferences(key: RatingKey, raters: Sequence[Mapping[str, Choice]]) -> Ratings:
    """From the answers of every rater, by item."""
    by_language: dict[str, list[Preferred]] = {}
    counted: dict[str, int] = {}
    for entry in key.pairs:
        votes = [_preferred(entry, answers[entry.item]) for answers in raters if entry.item in answers]
        if votes:
            by_language.setdefault(entry.language, []).append(_majority(votes))
            counted[entry.language] = max(counted.get(entry.language, 0), len(votes))
    overall = _preference(None, [one for rated in by_language.values() for one in rated], len(raters))
    languages = [_preference(code, rated, counted[code]) for code, rated in by_language.items()]
    adjusted = benjamini_hochberg([one.p for one in languages])
    return Ratings(
        original=key.original,
        quantized=key.quantized,
        identical=key.identical,
        languages=[
            one.model_copy(update={"p_corrected": float(p)}) for one, p in zip(languages, adjusted, strict=True)
        ],
        overall=overall,
    )


def _preferred(entry: KeyEntry, choice: Choice) -> Preferred:
    if choice == "tie":
        return "tie"
    return "original" if choice == entry.original else "quantized"


def _majority(votes: Sequence[Preferred]) -> Preferred:
    """The choice with most votes; a tie if two have as many."""
    (first, most), *others = Counter(votes).most_common()
    return "tie" if others and others[0][1] == most else first


def _preference(code: str | None, rated: Sequence[Preferred], raters: int) -> Preference:
    counts, pairs = Counter(rated), len(rated)
    p = mcnemar(counts["original"], counts["quantized"]).mid_p
    return Preference(
        language=code,
        name="all languages" if code is None else language(code).name,
        raters=raters,
        pairs=pairs,
        original=share(counts["original"], pairs),
        quantized=share(counts["quantized"], pairs),
        tie=share(counts["tie"], pairs),
        net=difference_of_shares(counts["original"], counts["quantized"], pairs),
        p=p,
        p_corrected=p,
    )
