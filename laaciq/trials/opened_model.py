"""One model, its texts, how passages are scored, where results are stored, and where weights lie: what every session opens."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import torch

from laaciq.corpus import Passages, Split, Texts, read_split
from laaciq.corpus.used_languages import used_languages
from laaciq.engine.environment import versions
from laaciq.engine.progress import Progress, default_progress
from laaciq.engine.recipe import RECIPE
from laaciq.engine.run_folder import RunFolder
from laaciq.engine.store import MemoryStore, Store, SubStore, key_of
from laaciq.engine.workers import ThisProcess, Workers
from laaciq.errors import TooLittleMemory
from laaciq.models import LanguageModel, ModelFolder, find_model, load
from laaciq.models.computing import default_dtype, device_kind, named_dtype, pick_device
from laaciq.models.left_alone import announced_left_alone
from laaciq.options import OUTLIER_KURTOSIS, MeasureOptions
from laaciq.profiling.profile import profile_model
from laaciq.profiling.results import Profile
from laaciq.quantization.calibration import Calibration
from laaciq.quantization.model import Quantized, quantize_model, rounds_with_text
from laaciq.quantization.plan import Plan
from laaciq.quantization.stored_layers import ROUNDED, RoundedBlocks
from laaciq.trials.estimate import Cost, CostModel, StageCost, by_stage, require_memory, total
from laaciq.trials.memory import Demand, MemoryLimits, Placement, bound_allocator
from laaciq.trials.quantized_copy import QuantizedCopy
from laaciq.trials.setup import SessionSetup

Value = TypeVar("Value")


@dataclass
class OpenedModel:
    """The model is loaded when it is first needed: a command that is up to date loads none. Without `out`, results are kept in memory. In a
    `with` block the folder `out` is this session's alone. `workers` measure; what they find is kept by this process. `allow_left_alone` is
    None if nothing is quantized. `demand` is what memory is needed for beside the model."""

    folder: ModelFolder
    split: Split
    options: MeasureOptions
    progress: Progress = field(default_factory=Progress)
    device: str = "auto"
    out: Path | None = None
    description: Mapping[str, object] = field(default_factory=dict)
    overwrite: bool = False
    recipe: str | None = None
    workers: Workers = field(default_factory=ThisProcess)
    limits: MemoryLimits = field(default_factory=MemoryLimits)
    allow_left_alone: bool | None = None
    demand: Demand = field(default_factory=Demand)
    _copies: list[QuantizedCopy] = field(default_factory=list, init=False, repr=False)
    _made: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)
    _reserved: tuple[int, Cost] | None = field(default=None, init=False, repr=False)
    _unbound: Callable[[], None] | None = field(default=None, init=False, repr=False)

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
        workers: Workers | None = None,
        limits: MemoryLimits | None = None,
        allow_left_alone: bool | None = None,
        demand: Demand | None = None,
    ) -> Self:
        """From names: a model, texts, some of their languages, and at most this many test passages per language. `recipe` is
        written beside the results.
        """
        pick_device(device)
        folder = find_model(model)
        split = read_split(texts, seed=options.seed).select(used_languages(languages, texts, folder.path))
        if passages is not None:
            split = replace(split, test=split.test.spread(passages))
        return cls(
            folder, split, options, progress or default_progress(), device,
            None if out is None else Path(out), description or {}, overwrite, recipe, workers or ThisProcess(),
            limits or MemoryLimits(),
            allow_left_alone,
            demand or Demand(),
        )  # fmt: skip

    @classmethod
    def of(cls, model: LanguageModel, split: Split, options: MeasureOptions, **others: object) -> Self:
        """For a model that is already loaded."""
        session = cls(model.folder, split, options, **others)  # type: ignore[arg-type]
        session.__dict__["original"] = model
        session.__dict__["dtype"] = str(model.dtype)
        return session

    def on(self, split: Split, *, within: str | None = None) -> Self:
        """One with the same model and store on other text. `within` begins the names of its results, so that they do not replace this
        session's.
        """
        other = replace(self, split=split)
        other.__dict__["original"], other.__dict__["dtype"] = self.original, self.dtype
        other.__dict__["fingerprint"] = self.fingerprint
        other.__dict__["store"] = self.store if within is None else SubStore(self.store, within)
        other._copies, other._made, other._reserved = self._copies, self._made, self._reserved
        return other

    def keeping_in(self, store: Store, prefix: str) -> Self:
        """This session, with its results in a part of a store that several sessions share. Before anything is computed."""
        self.__dict__["store"] = SubStore(store, prefix)
        return self

    def __enter__(self) -> Self:
        """The folder for results is opened at once: if it cannot be used, that is known before any work."""
        _ = self.store
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        try:
            if self._unbound is not None:
                self._unbound()
            self.workers.close()
            # It was kept in case the command is killed.
            if failure is None:
                self.store.drop(f"{ROUNDED}/")
        finally:
            self.store.close()

    @cached_property
    def original(self) -> LanguageModel:
        return self.loaded_by(load)

    def loaded_by(self, read: Callable[..., LanguageModel]) -> LanguageModel:
        """The model as `read` loads it, with its weights where there is room for them."""
        tokenizer = self.costs.model.tokenizer if "costs" in self.__dict__ else None
        return read(self.folder, tokenizer=tokenizer, **self._where(self.folder))

    def load_beside(self, folder: ModelFolder) -> LanguageModel:
        """Another model, with its weights where there is room for them beside this one."""
        return load(folder, **self._where(folder))

    def _where(self, folder: ModelFolder) -> dict[str, Any]:
        """How a model is loaded: where there is room for its weights, and torch then takes no more."""
        placement = self.placement
        bounded = self.place.type == "cpu" or (
            self.limits.host is not None and self.limits.host < self.costs.model_bytes
        )
        if bounded and placement.most_bytes is not None and not folder.is_plain:
            raise TooLittleMemory(
                f"--host-memory does not suffice for {folder.name}: its weights are dequantized into host memory as a whole; give more, or "
                "leave it out"
            )
        self._unbound = self._unbound or bound_allocator(self.place, self.limits)
        return {
            "device": self.device,
            "dtype": named_dtype(self.options.dtype),
            "most_bytes": placement.most_bytes,
            "pinned_bytes": placement.pinned_bytes,
        }

    @cached_property
    def placement(self) -> Placement:
        """Where the weights of the original and of candidates lie."""
        if self.place.type == "cpu" and self.limits.host is None:
            return Placement()
        return self.costs.placement

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
        return str(named_dtype(self.options.dtype) or default_dtype(self.place))

    @property
    def computed_with(self) -> dict[str, str]:
        """What decides results beside inputs and options. It is part of every key."""
        return {**versions(), "device": device_kind(self.place), "dtype": self.dtype.removeprefix("torch.")}

    @cached_property
    def fingerprint(self) -> str:
        """Of the model's files, read once: a key is made for every language of every candidate."""
        return self.folder.fingerprint

    @cached_property
    def costs(self) -> CostModel:
        return CostModel.of(self.folder, self.options, self.place, self.limits, self.demand)

    def announce(self, sentence: str, stages: Sequence[StageCost]) -> None:
        """Print what will be done and its estimated cost, by stage if several take long. Raises an error if memory does not suffice, or if too
        many weights of the blocks would not be quantized.
        """
        left = self.left_alone()
        sentence = sentence if left is None else f"{sentence} {left}"
        cost = total(stages)
        workers, each = self.reserve_workers()
        require_memory(cost, self.place, beside=[each] * workers if self.workers.here else [])
        takes = f"This takes {cost}{by_stage(stages)}"
        if workers:
            takes += f" in one process; {workers} workers share in it, with {each.memory} more each"
        self.progress.say(f"{sentence} {takes}; existing results are not computed again.")

    def left_alone(self) -> str | None:
        """Sentences on weights that will not be quantized; None if there are none, or if nothing is quantized. Raises an error if too many
        weights of the blocks will not.
        """
        if self.allow_left_alone is None:
            return None
        return announced_left_alone(self.costs.model.anatomy, allowed=self.allow_left_alone)

    def reserve_workers(self, stages: Sequence[StageCost] | None = None) -> tuple[int, Cost]:
        """Prepare workers with the memory of these stages; by default, for loading and measuring. Once. Returns their number, 0 if there are
        none, and what each needs.
        """
        if self._reserved is None and self.workers.apart:
            each = total(stages or [self.costs.loading(), self.costs.measuring(self.split.test)])
            number = self.workers.reserve(
                SessionSetup.of(self), gpu=self.place.type == "cuda", memory=each.memory_bytes
            )
            self._reserved = number, each
        return self._reserved or (0, total([]))

    def profile(self, texts: Texts, *, name: str = "profile.json") -> Profile:
        """The profile of the model on these texts."""

        def compute() -> Profile:
            return profile_model(
                self.original, texts, self.options, outlier_kurtosis=OUTLIER_KURTOSIS, progress=self.progress
            )

        return self.store.result(name, Profile, self.profile_key(texts), compute)

    def profile_key(self, texts: Texts) -> str:
        return key_of(
            "profile", self.computed_with, self.fingerprint, texts.fingerprint, self.options.model_dump(),
            OUTLIER_KURTOSIS,
        )  # fmt: skip

    # One language at a time: read from the store, or computed.

    def key(self, passages: Passages, *parts: object) -> str:
        """The key of a result in one language: the model, the passages, how they are scored, and everything else that decides it."""
        scored = (passages.texts, passages.documents, self.options.model_dump(), self.computed_with)
        return key_of(self.fingerprint, scored, *parts)

    def copy(self, number: int = 0) -> QuantizedCopy:
        while len(self._copies) <= number:
            self._copies.append(QuantizedCopy(self.original, packed=self.placement.packed))
        return self._copies[number]

    def once(self, name: Hashable, make: Callable[[], Value]) -> Value:
        """What `make` makes of the original, kept in memory for later tasks."""
        if name not in self._made:
            self._made[name] = make()
        return cast("Value", self._made[name])

    def quantized(self, plan: Plan, calibration: Calibration | None, *, title: str = "rounding") -> Quantized:
        """The layers of a plan, and tuned parameters. If they are rounded on text, block by block, every block is kept in the store as soon as
        it is rounded: a command that was killed goes on with the next one.
        """
        # Candidates that were measured need not lie beside one that is rounded or tuned.
        for candidate in self._copies:
            candidate.release()
        return quantize_model(
            self.original, plan, calibration, kept=self.rounded_blocks(plan, calibration), progress=self.progress,
            title=title,
        )  # fmt: skip

    def rounded_blocks(self, plan: Plan, calibration: Calibration | None) -> RoundedBlocks | None:
        """Where blocks of the plan are kept; None if they are rounded without text, which is fast."""
        if calibration is None or not rounds_with_text(plan):
            return None
        texts = calibration.texts.select(plan.languages)
        read = (self.fingerprint, texts.fingerprint, self.options.model_dump(), self.computed_with)
        decided = plan.model_dump(exclude={"tuned", "predicted", "size"})
        return RoundedBlocks(self.store, key_of("rounded", read, decided))
