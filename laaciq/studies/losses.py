"""The two halves of an intervention: quantize some matrices of a model for a while, and see what its passages cost meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import product
from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from laaciq.corpus import Texts
from laaciq.engine.progress import Progress
from laaciq.engine.store import RunFolder, key_of
from laaciq.errors import BadOption, BrokenModel
from laaciq.models import LanguageModel
from laaciq.options import Bits, GroupSize, MeasureOptions, Options
from laaciq.quantization import quantize_matrix
from laaciq.quantization.plan import TensorPlan
from laaciq.scoring.likelihood import batch_tokens, batches, bits_per_byte, target_losses
from laaciq.scoring.sequences import ScoredPassage, prepare_all
from laaciq.trials.estimate import estimate

ORIGINAL = "original"


class Grid(Options):
    """What matrices are rounded to, by round to nearest."""

    bits: Bits
    group_size: GroupSize
    symmetric: bool


class PassageLosses(BaseModel):
    """One language under one intervention; every list has one entry a passage, `nll` in nats."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    nll: list[float]
    tokens: list[int]
    bytes: list[int]

    @property
    def bits_per_byte(self) -> float:
        return bits_per_byte(sum(self.nll), sum(self.bytes))


@torch.inference_mode()
def nll_by_passage(
    model: LanguageModel, prepared: list[ScoredPassage], *, advance: Callable[[int], None] = lambda tokens: None
) -> np.ndarray:
    """Negative log-likelihood of every passage in nats. `advance` is told the scored tokens of every batch."""
    nll = np.zeros(len(prepared))
    for owners, sequences in batches(prepared, batch_tokens(model)):
        losses = target_losses(model, sequences).double().cpu().numpy()
        np.add.at(nll, np.repeat(owners, [len(s.targets) for s in sequences]), losses)
        advance(len(losses))
    if not np.isfinite(nll).all():
        raise BrokenModel(f"{model.folder.name} gives NaN or infinite losses on these texts: it cannot be measured")
    return nll


@contextmanager
def quantized_parts(
    model: LanguageModel, names: set[str], *, bits: int, group_size: GroupSize, symmetric: bool
) -> Iterator[None]:
    """Within the block, the named matrices of `model` are rounded to nearest, in place; afterwards they are bit for bit what they were.

    Takes linear layers of blocks, embeddings and heads, by parameter name. Matrices that are tied are one, under whatever name.
    """
    known = _matrices(model)
    if unknown := sorted(names - set(known)):
        raise BadOption(
            f"{model.folder.name} has no matrix {unknown[0]!r}: give weights of linear layers in blocks, embeddings or the head"
        )
    # By storage, since a transposed view of a parameter is another object each time.
    chosen = {known[name].data_ptr(): (name, known[name]) for name in sorted(names)}
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    try:
        with torch.no_grad():
            for name, matrix in chosen.values():
                rows, columns = matrix.shape
                plan = TensorPlan(
                    name=name, shape=(rows, columns), bits=bits, group_size=group_size, symmetric=symmetric
                )
                rounded = quantize_matrix(matrix, plan).dequantize(plan)
                kept.append((matrix, matrix.clone()))
                matrix.copy_(rounded)
        yield
    finally:
        with torch.no_grad():
            for matrix, original in kept:
                matrix.copy_(original)


def _matrices(model: LanguageModel) -> dict[str, torch.Tensor]:
    """By parameter name, tied ones under each of theirs, as (outputs, inputs): what `quantized_parts` takes."""
    tables = {part.name for part in model.anatomy.tensors if part.role in ("embedding", "head")}
    found = {linear.name: linear.matrix for linear in model.anatomy.linears}
    parameters = dict(model.module.named_parameters(remove_duplicate=False))
    stored = {parameters[name].data_ptr() for name in tables}
    return found | {name: p for name, p in parameters.items() if p.ndim == 2 and p.data_ptr() in stored}


@dataclass
class Passes:
    """Passes of one model over the texts, each language's read from the store where it is there."""

    model: LanguageModel
    texts: Texts
    options: MeasureOptions
    grid: Grid
    store: RunFolder | None
    progress: Progress
    prepared: dict[str, list[ScoredPassage]] = field(init=False, default_factory=dict)
    keys: dict[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        asked = self.options.model_dump(exclude={"served_bound"})
        fingerprint = self.model.folder.fingerprint
        for code, passages in self.texts.by_language.items():
            asking = [fingerprint, passages.texts, passages.documents, asked, self.model.device.type]
            self.keys[code] = key_of("passage losses", asking)

    def key(self, part: str, code: str) -> str:
        # The original knows no grid: its pass serves every number of bits.
        return key_of(self.keys[code], part, None if part == ORIGINAL else self.grid.model_dump())

    def announce(self, parts: list[str], codes: list[str]) -> None:
        """Say what these passes will take."""
        sizes = {code: passages.byte_count for code, passages in self.texts.by_language.items()}
        pending = sum(sizes[code] for part, code in product(parts, codes) if not self._there(part, code))
        if not pending:
            self.progress.say("Everything is up to date; nothing is computed again.")
            return
        # Of two passes over all texts.
        both = estimate(self.model.folder, self.texts, device=self.model.device)
        cost = replace(both, seconds=both.seconds / 2 * pending / sum(sizes.values()))
        self.progress.say(f"This takes {cost}.")

    def over(self, interventions: dict[str, set[str]], codes: list[str]) -> dict[str, dict[str, PassageLosses]]:
        """By intervention and language. An intervention is a name and the matrices that are quantized meanwhile."""
        pending = [code for part, code in product(interventions, codes) if not self._there(part, code)]
        total = sum(len(s.targets) for code in pending for passage in self._asked(code) for s in passage.sequences)
        with self.progress.stage("measuring", total) as advance:
            return {part: self._intervene(part, names, codes, advance) for part, names in interventions.items()}

    def _intervene(
        self, part: str, names: set[str], codes: list[str], advance: Callable[[int], None]
    ) -> dict[str, PassageLosses]:
        with ExitStack() as stack:

            @cache  # once, and only if there is something to measure
            def quantize() -> None:
                stack.enter_context(quantized_parts(self.model, names, **self.grid.model_dump()))

            def compute(code: str) -> PassageLosses:
                quantize()
                passages = self._asked(code)
                return PassageLosses(
                    nll=nll_by_passage(self.model, passages, advance=advance).tolist(),
                    tokens=[sum(len(s.targets) for s in passage.sequences) for passage in passages],
                    bytes=[passage.scored_bytes for passage in passages],
                )

            return {code: self._kept(part, code, partial(compute, code)) for code in codes}

    def _asked(self, code: str) -> list[ScoredPassage]:
        if code not in self.prepared:
            asked = self.options.model_dump(include={"window", "chat", "seed"})
            passages = self.texts[code]
            self.prepared[code] = prepare_all(self.model, passages.texts, passages.language, **asked)
        return self.prepared[code]

    def _there(self, part: str, code: str) -> bool:
        return self.store is not None and self.store.valid(_file(part, code), self.key(part, code))

    def _kept(self, part: str, code: str, compute: Callable[[], PassageLosses]) -> PassageLosses:
        if self.store is None:
            return compute()
        return self.store.result(_file(part, code), PassageLosses, self.key(part, code), compute)


def _file(part: str, code: str) -> str:
    return f"losses/{part.replace(' ', '-')}.{code}.json"
