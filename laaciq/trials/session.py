"""A session: one model, its texts, how passages are scored, and where results are stored. Everything that measures uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Self, TypeVar

import torch
from pydantic import BaseModel

from laaciq.corpus import Passages, Split, Texts, read_split
from laaciq.engine.environment import versions
from laaciq.engine.progress import Progress, default_progress
from laaciq.engine.recipe import RECIPE
from laaciq.engine.store import MemoryStore, RunFolder, Store, SubStore, key_of
from laaciq.models import LanguageModel, ModelFolder, find_model, load
from laaciq.models.loading import default_dtype, device_kind, pick_device
from laaciq.options import OUTLIER_KURTOSIS, MeasureOptions
from laaciq.profiling.profile import profile_model
from laaciq.profiling.results import Profile
from laaciq.scoring.sequences import ScoredPassage, prepare_all
from laaciq.trials.candidate import Candidate
from laaciq.trials.estimate import CostModel, StageCost, by_stage, require_memory, total
from laaciq.trials.measurement import Measurement, PassageLosses, measure_each, measure_pooled, paired, passage_losses
from laaciq.trials.quantized_copy import QuantizedCopy

Result = TypeVar("Result", bound=BaseModel)
Compute = Callable[[str, list[ScoredPassage], Callable[[int], None]], Result]
ORIGINAL = "original"


@dataclass
class Session:
    """The model is loaded when it is first needed: a command that is up to date loads none. Without `out`, results are kept in memory. In a
    `with` block the folder `out` is this session's alone."""

    folder: ModelFolder
    split: Split
    options: MeasureOptions
    progress: Progress = field(default_factory=Progress)
    device: str = "auto"
    out: Path | None = None
    description: Mapping[str, object] = field(default_factory=dict)
    overwrite: bool = False
    recipe: str | None = None
    _copies: list[QuantizedCopy] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def open(
        cls,
        model: str | Path,
        texts: str | Path,
        options: MeasureOptions,
        *,
        languages: Iterable[str] | None = None,
        passages: int | None = None,
        out: str | Path | None = None,
        description: Mapping[str, object] | None = None,
        overwrite: bool = False,
        recipe: str | None = None,
        device: str = "auto",
        progress: Progress | None = None,
    ) -> Session:
        """A session from names: a model, texts, some of their languages, and at most this many test passages per language. `recipe` is
        written beside the results.
        """
        pick_device(device)
        folder = find_model(model)
        split = read_split(texts, seed=options.seed).select(None if languages is None else list(languages))
        if passages is not None:
            split = replace(split, test=split.test.spread(passages))
        return cls(
            folder, split, options, progress or default_progress(), device,
            None if out is None else Path(out), description or {}, overwrite, recipe,
        )  # fmt: skip

    @classmethod
    def of(cls, model: LanguageModel, split: Split, options: MeasureOptions, **others: object) -> Session:
        """A session for a model that is already loaded."""
        session = cls(model.folder, split, options, **others)  # type: ignore[arg-type]
        session.__dict__["original"] = model
        session.__dict__["dtype"] = str(model.module.dtype)
        return session

    def on(self, split: Split, *, within: str | None = None) -> Session:
        """A session with the same model and store on other text. `within` begins the names of its results, so that they do not replace this
        session's.
        """
        other = replace(self, split=split)
        other.__dict__["original"], other.__dict__["dtype"] = self.original, self.dtype
        other.__dict__["store"] = self.store if within is None else SubStore(self.store, within)
        other._copies = self._copies
        return other

    def __enter__(self) -> Self:
        """The folder for results is opened at once: if it cannot be used, that is known before any work."""
        _ = self.store
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    @cached_property
    def original(self) -> LanguageModel:
        return load(self.folder, device=self.device)

    @cached_property
    def store(self) -> Store:
        if self.out is None:
            return MemoryStore()
        store = RunFolder(
            self.out, description=self.description, overwrite=self.overwrite, computed_with=self.computed_with
        )
        if self.recipe is not None:
            store.write(RECIPE, self.recipe)
        return store

    @property
    def place(self) -> torch.device:
        """The device of the model."""
        return self.original.device if "original" in self.__dict__ else pick_device(self.device)

    @cached_property
    def dtype(self) -> str:
        """The type of numbers in which models compute; `auto` is that of the checkpoint."""
        return str(default_dtype(self.place))

    @property
    def computed_with(self) -> dict[str, str]:
        """What decides results beside inputs and options. It is part of every key."""
        return {**versions(), "device": device_kind(self.place), "dtype": self.dtype.removeprefix("torch.")}

    @cached_property
    def costs(self) -> CostModel:
        return CostModel.of(self.folder, self.options, self.place)

    def announce(self, sentence: str, stages: Sequence[StageCost]) -> None:
        """Print what will be done and its estimated cost, by stage if several take long. Raises an error if memory does not suffice."""
        cost = total(stages)
        require_memory(cost, self.place)
        self.progress.say(f"{sentence} This takes {cost}{by_stage(stages)}; existing results are not computed again.")

    def profile(self, texts: Texts, *, name: str = "profile.json") -> Profile:
        """The profile of the model on these texts."""

        def compute() -> Profile:
            return profile_model(
                self.original, texts, self.options, outlier_kurtosis=OUTLIER_KURTOSIS, progress=self.progress
            )

        return self.store.result(name, Profile, self.profile_key(texts), compute)

    def profile_key(self, texts: Texts) -> str:
        return key_of(
            "profile", self.computed_with, self.folder.fingerprint, texts.fingerprint, self.options.model_dump(),
            OUTLIER_KURTOSIS,
        )  # fmt: skip

    # One language at a time: read from the store, or computed.

    def key(self, passages: Passages, *parts: object) -> str:
        """The key of a result in one language: the model, the passages, how they are scored, and everything else that decides it."""
        scored = (passages.texts, passages.documents, self.options.model_dump(), self.computed_with)
        return key_of(self.folder.fingerprint, scored, *parts)

    def by_language(
        self,
        name: str,
        texts: Texts,
        kind: type[Result],
        compute: Compute[Result],
        *,
        key: object,
        title: str = "measuring",
        passes: int = 1,
    ) -> dict[str, Result]:
        """Results of `compute(language, prepared passages, advance)` by language, computed where `name` and `key` are not in the store.
        `advance` counts scored tokens over all `passes`.
        """
        keys = {code: self.key(passages, key) for code, passages in texts.by_language.items()}
        pending = [code for code in texts.languages if not self.store.valid(_file(name, code), keys[code])]
        prepared = {code: self.prepared(texts[code]) for code in pending}
        tokens = sum(passage.scored_tokens for passages in prepared.values() for passage in passages)
        with self.progress.stage(title, tokens * passes) as advance:
            for code in pending:
                self.store.keep(_file(name, code), compute(code, prepared[code], advance), keys[code])
        return {code: self.store.read(_file(name, code), kind) for code in texts.languages}

    def prepared(self, passages: Passages) -> list[ScoredPassage]:
        return prepare_all(self.original, passages, self.options)

    def original_losses(self, texts: Texts, *, part: str = "test") -> dict[str, PassageLosses]:
        """Losses of the original by language."""

        def compute(code: str, prepared: list[ScoredPassage], advance: Callable[[int], None]) -> PassageLosses:
            return passage_losses(self.original, prepared, advance=advance)

        return self.by_language(f"{ORIGINAL}/{part}", texts, PassageLosses, compute, key=ORIGINAL)

    def losses(self, candidate: Candidate, texts: Texts, *, part: str = "test") -> dict[str, Measurement]:
        """Losses of a candidate and of the original, which is run once for all candidates. There is no divergence; it takes half the time
        of `measure`.
        """
        original = self.original_losses(texts, part=part)

        def compute(code: str, prepared: list[ScoredPassage], advance: Callable[[int], None]) -> Measurement:
            with candidate.applied(self.copy(), code) as model:
                nll = passage_losses(model, prepared, advance=advance).nll
            return paired(texts[code], original[code], nll, self.options)

        return self.by_language(f"{candidate.name}/{part}", texts, Measurement, compute, key=candidate.key)

    def measure(
        self, candidates: Sequence[Candidate], texts: Texts, *, part: str = "test"
    ) -> list[dict[str, Measurement]]:
        """Measurements of candidates by language: losses, divergence and agreement. One pass of the original serves all candidates, at the
        cost of one copy of the model each.
        """
        pending = [self.pending(candidate.name, candidate.key, texts, part=part) for candidate in candidates]
        missing = {
            code: [candidate for candidate, codes in zip(candidates, pending, strict=True) if code in codes]
            for code in texts.languages
        }
        total = sum(len(texts[code]) for code, lacking in missing.items() if lacking)
        with self.progress.stage("measuring", total) as advance:
            for code, lacking in missing.items():
                if lacking:
                    self._measure_side_by_side(lacking, texts[code], part, advance)
        return [self._read(candidate, texts, part) for candidate in candidates]

    def measure_pooled(self, candidate: Candidate, texts: Texts, *, part: str) -> dict[str, Measurement]:
        """Like `measure`, with all languages in one pass under the same weights. Faster for short texts, but nothing is stored before the
        end.
        """
        if self.pending(candidate.name, candidate.key, texts, part=part):
            # All languages, even if a killed process kept some: in other batches, others would differ in their last digits.
            pooled = list(texts.by_language.values())
            with candidate.applied(self.copy(), pooled[0].language.code) as model:
                measurements = measure_pooled(self.original, model, pooled, self.options, progress=self.progress)
            for measurement, passages in zip(measurements, pooled, strict=True):
                self._keep(candidate, measurement, passages, part)
        return self._read(candidate, texts, part)

    def pending(self, name: str, key: str, texts: Texts, *, part: str = "test") -> list[str]:
        """Languages in which the candidate of this name and key has not been measured yet."""
        return [
            code
            for code, passages in texts.by_language.items()
            if not self.store.valid(_file(f"{name}/{part}", code), self.key(passages, key))
        ]

    def copy(self, number: int = 0) -> QuantizedCopy:
        while len(self._copies) <= number:
            self._copies.append(QuantizedCopy(self.original))
        return self._copies[number]

    def _measure_side_by_side(
        self, candidates: list[Candidate], passages: Passages, part: str, advance: Callable[[int], None]
    ) -> None:
        code = passages.language.code
        with ExitStack() as stack:
            models = [
                stack.enter_context(candidate.applied(self.copy(number), code))
                for number, candidate in enumerate(candidates)
            ]
            measurements = measure_each(self.original, models, passages, self.options, advance=advance)
        for candidate, measurement in zip(candidates, measurements, strict=True):
            self._keep(candidate, measurement, passages, part)

    def _keep(self, candidate: Candidate, measurement: Measurement, passages: Passages, part: str) -> None:
        name = _trial(candidate, part, measurement.language)
        self.store.keep(name, measurement, self.key(passages, candidate.key))

    def _read(self, candidate: Candidate, texts: Texts, part: str) -> dict[str, Measurement]:
        return {code: self.store.read(_trial(candidate, part, code), Measurement) for code in texts.languages}


def _trial(candidate: Candidate, part: str, code: str) -> str:
    return _file(f"{candidate.name}/{part}", code)


def _file(name: str, code: str) -> str:
    """Name of a result in the store."""
    return f"trials/{name.replace(' ', '-')}/{code}.json"
