"""Passes over texts under many protections of a model, a file for each language, so that what was measured is not measured again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from laaciq.corpus import Texts
from laaciq.engine.progress import Progress
from laaciq.engine.store import RunFolder, key_of
from laaciq.models import LanguageModel
from laaciq.options import MeasureOptions, WeightOptions
from laaciq.planning.rules import make_plans
from laaciq.quantization.plan import Plan
from laaciq.scoring.likelihood import bits_per_byte
from laaciq.scoring.sequences import ScoredPassage, first_tokens, prepare_all
from laaciq.studies.protection import BlockSet, ProtectableBlocks, nll_by_set, prefix_count, prefixes_suffice
from laaciq.trials.estimate import estimate


class SetLosses(BaseModel):
    """One language: `nll` in nats, for every set of protected blocks an entry a passage."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    sets: list[BlockSet]
    nll: list[list[float]]
    tokens: list[int]
    bytes: list[int]

    def of(self, protected: BlockSet) -> np.ndarray:
        return np.array(self.nll[self.sets.index(protected)])

    def bits_per_byte(self, protected: BlockSet) -> float:
        return bits_per_byte(self.of(protected).sum(), sum(self.bytes))


@dataclass
class SetPasses:
    """Of one model, quantized as `quantizing` says but for the protected blocks."""

    model: LanguageModel
    options: MeasureOptions
    quantizing: WeightOptions
    store: RunFolder | None
    progress: Progress
    _by_prefix: bool | None = field(init=False, default=None)

    @property
    def every(self) -> BlockSet:
        """All blocks: under their protection the model is the original."""
        return tuple(range(len(self.model.anatomy.block_names)))

    def plan(self, protected: BlockSet) -> Plan:
        spared = (",".join(map(str, protected)),) if protected else ()
        return make_plans(self.model.anatomy, self.quantizing.model_copy(update={"protect": spared})).first

    def over(self, stage: str, texts: Texts, codes: list[str], sets: list[BlockSet]) -> dict[str, SetLosses]:
        """By language."""
        keys = {code: self._key(texts, code, sets) for code in codes}
        pending = [code for code in codes if self.store is None or not self.store.valid(_file(stage, code), keys[code])]
        self._announce(stage, texts, pending, sets)
        prepared = {code: self._prepared(texts, code) for code in codes}
        total = sum(_tokens(passage) for code in pending for passage in prepared[code])
        with self.progress.stage(stage, total * len(sets)) as advance:

            def kept(code: str) -> SetLosses:
                def compute() -> SetLosses:
                    return self._measure(prepared[code], sets, advance)

                return (
                    compute()
                    if self.store is None
                    else self.store.result(_file(stage, code), SetLosses, keys[code], compute)
                )

            return {code: kept(code) for code in codes}

    def _measure(
        self, prepared: list[ScoredPassage], sets: list[BlockSet], advance: Callable[[int], None]
    ) -> SetLosses:
        if self._by_prefix is None:
            probe = [s for passage in prepared for s in passage.sequences if s.targets][:2]
            self._by_prefix = prefixes_suffice(self._blocks, probe)
            if not self._by_prefix:
                self.progress.say("Blocks of this model share more than hidden states: every set is a pass of its own.")
        return SetLosses(
            sets=sets,
            nll=nll_by_set(self._blocks, prepared, sets, by_prefix=self._by_prefix, advance=advance).tolist(),
            tokens=[_tokens(passage) for passage in prepared],
            bytes=[passage.scored_bytes for passage in prepared],
        )

    @cached_property
    def _blocks(self) -> ProtectableBlocks:
        return ProtectableBlocks(self.model, self.plan(()))

    def _prepared(self, texts: Texts, code: str) -> list[ScoredPassage]:
        asked = self.options.model_dump(include={"window", "chat", "seed"})
        return prepare_all(self.model, texts[code].texts, texts[code].language, **asked)

    def _key(self, texts: Texts, code: str, sets: list[BlockSet]) -> str:
        asked = self.options.model_dump(exclude={"served_bound"})
        return key_of(
            "losses by set",
            [self.model.folder.fingerprint, texts[code].texts, texts[code].documents, asked, self.model.device.type],
            [self.quantizing.model_dump(), sets],
        )

    def _announce(self, stage: str, texts: Texts, pending: list[str], sets: list[BlockSet]) -> None:
        if not pending:
            return
        blocks = self.model.anatomy.parameter_count("block") / self.model.anatomy.parameter_count()
        passes = blocks * prefix_count(sets, len(self.every)) / len(self.every) + (1 - blocks) * len(sets)
        # Of two passes.
        both = estimate(self.model.folder, texts.select(pending), device=self.model.device)
        cost = replace(both, seconds=both.seconds / 2 * passes)
        self.progress.say(f"Measuring {stage} in {len(pending)} languages ({texts.name}). This takes {cost}.")


def shortened(model: LanguageModel, texts: Texts, *, passages: int, tokens: int) -> Texts:
    """At most so many passages of every language, each up to so many tokens: what a pass costs is then known beforehand."""
    few = texts.spread(passages)
    return replace(
        few,
        by_language={
            code: replace(own, texts=tuple(first_tokens(model.tokenizer, text, tokens) for text in own.texts))
            for code, own in few.by_language.items()
        },
    )


def _tokens(passage: ScoredPassage) -> int:
    return sum(len(s.targets) for s in passage.sequences)


def _file(stage: str, code: str) -> str:
    return f"losses/{stage.replace(' ', '-')}.{code}.json"
