"""Losses under many sets of protected blocks, by language."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from laaciq.corpus import Texts
from laaciq.engine.progress import Advance
from laaciq.options import WeightOptions
from laaciq.planning.rules import make_plans
from laaciq.quantization.plan import Plan
from laaciq.scoring.sequences import ScoredPassage
from laaciq.strict import StrictModel
from laaciq.studies.protection import BlockSet, ProtectableBlocks, nll_by_set, prefix_count, prefixes_suffice
from laaciq.trials.estimate import StageCost
from laaciq.trials.session import Session
from laaciq.trials.tasks import LanguageTask


class SetLosses(StrictModel):
    """One language: `nll` in nats, by set of protected blocks and passage."""

    version: Literal[1] = 1
    sets: list[BlockSet]
    nll: list[list[float]]
    tokens: list[int]

    def of(self, protected: BlockSet) -> np.ndarray:
        return np.array(self.nll[self.sets.index(protected)])


@dataclass(frozen=True)
class SetTask(LanguageTask):
    """Losses of one language under sets of protected blocks. `plan` protects none."""

    plan: Plan
    prepared: list[ScoredPassage]
    sets: list[BlockSet]
    by_prefix: bool

    def run(self, session: Session, advance: Advance) -> SetLosses:
        blocks = protectable_blocks(session, self.plan)
        nll = nll_by_set(blocks, self.prepared, self.sets, by_prefix=self.by_prefix, advance=advance)
        tokens = [passage.scored_tokens for passage in self.prepared]
        return SetLosses(sets=self.sets, nll=nll.tolist(), tokens=tokens)


def protectable_blocks(session: Session, plan: Plan) -> ProtectableBlocks:
    packed = session.placement.packed
    return session.once(
        ("protectable blocks", plan.model_dump_json()),
        lambda: ProtectableBlocks(session.original, plan, packed=packed),
    )


@dataclass
class ProtectedSets:
    """Candidates that differ in the protected blocks. They are measured together, because sets with a common prefix share passes."""

    session: Session
    quantizing: WeightOptions
    _by_prefix: bool | None = field(init=False, default=None)

    @property
    def every(self) -> BlockSet:
        """All blocks; protecting them all gives the original."""
        return tuple(range(len(self.session.original.anatomy.block_names)))

    def plan(self, protected: BlockSet) -> Plan:
        spared = (",".join(map(str, protected)),) if protected else ()
        options = self.quantizing.model_copy(update={"protect": spared})
        return make_plans(self.session.original.anatomy, options).first

    def losses(self, name: str, texts: Texts, sets: list[BlockSet]) -> dict[str, SetLosses]:
        """Losses by language; `name` is used in files and progress."""

        def task(code: str, prepared: list[ScoredPassage]) -> SetTask:
            return SetTask(f"{name}, {code}", self.plan(()), prepared, sets, self._shared_prefixes(prepared))

        key = [self.quantizing.model_dump(), sets]
        return self.session.by_language(name, texts, SetLosses, task, key=key, title=name, passes=len(sets))

    def cost(self, texts: Texts, sets: list[BlockSet]) -> StageCost:
        """The cost of `losses`: every block once per distinct prefix, the head once per set."""
        anatomy = self.session.original.anatomy
        blocks = anatomy.parameter_count("block") / anatomy.parameter_count()
        passes = blocks * prefix_count(sets, len(self.every)) / len(self.every) + (1 - blocks) * len(sets)
        both = self.session.costs.measuring(texts)
        return replace(both, seconds=both.seconds / 2 * passes)

    def _shared_prefixes(self, prepared: list[ScoredPassage]) -> bool:
        """Decided once, here: all workers are to do the same."""
        if self._by_prefix is None:
            probe = [s for passage in prepared for s in passage.sequences if s.targets][:2]
            self._by_prefix = prefixes_suffice(protectable_blocks(self.session, self.plan(())), probe)
            if not self._by_prefix:
                self.session.progress.say(
                    "Blocks of this model share more than hidden states: every set takes a separate pass."
                )
        return self._by_prefix
