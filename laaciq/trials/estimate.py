"""Time and memory of passes over text, estimated before a model is loaded: work counted from shapes, speed measured on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch

from laaciq.corpus import Passages, Texts
from laaciq.engine.placement import sharing
from laaciq.engine.progress import duration
from laaciq.engine.work import Speed, Work, measure_speed
from laaciq.errors import TooLittleMemory
from laaciq.models import LanguageModel, ModelFolder
from laaciq.models.computing import computing_dtype, named_dtype
from laaciq.models.loading import skeleton
from laaciq.options import MeasureOptions
from laaciq.profiling.activations import prepare_whole
from laaciq.profiling.redundancy import FOLDS
from laaciq.scoring.likelihood import READ_TOKENS, tokens_per_batch
from laaciq.scoring.operations import ModelShape, Reading, scoring
from laaciq.scoring.sequences import ScoredPassage, prepare_all
from laaciq.trials.measurement import SERVED_PROBE
from laaciq.trials.memory import (
    Demand,
    MemoryLimits,
    Placement,
    free_memory,
    packed_bytes,
    place_weights,
    taken_bytes,
)

# Passages per language to tokenize; the others are assumed to have as many tokens per byte.
SAMPLED = 6
# Interpreter, libraries, and freed memory that the allocator keeps; with CUDA, its libraries too.
_BASE_BYTES, _CUDA_BYTES = 850 * 2**20, 2500 * 2**20
# Operations of all eigenvalues of a symmetric n×n matrix in float64, in units of n³ at the speed of a Cholesky factor.
_EIGENVALUES = 4.0
# Operations that a GPU starts one after the other for them, in units of n.
_EIGENVALUE_CALLS = 5.0
# Bytes of memory that are copied to a GPU in the time of one byte of a mapped file. (Beside an H200: 2.6 to 3.7 GB/s of files, 13B and 7B.)
_MAPPED = 3.0
# Operations started, and numbers read per weight, to read and check files.
_LOAD_CALLS, _LOAD_ELEMENTS = 6e5, 30.0
# The same of GGUF, where transformers reads the vocabulary in Python once more, token by token, and dequantizes in numpy. (Two cores, Gemma 3
# 270M: 27 s, 28 announced; Qwen2.5-Coder 0.5B: 22 s, 26 announced.)
_GGUF_TOKEN_CALLS, _GGUF_ELEMENTS = 45.0, 800.0


@dataclass(frozen=True)
class Cost:
    """Time and memory. `device_bytes` is memory of the accelerator, if one is used."""

    seconds: float
    memory_bytes: float
    device_bytes: float = 0.0

    @property
    def memory(self) -> str:
        """In words."""
        return _gigabytes(self.memory_bytes) + (
            f" and {_gigabytes(self.device_bytes)} on the GPU" if self.device_bytes else ""
        )

    def __str__(self) -> str:
        return f"about {duration(self.seconds)}, {self.memory}"


@dataclass(frozen=True)
class StageCost(Cost):
    """The cost of one stage of a command, with its `name`."""

    name: str = field(kw_only=True)


def total(stages: Iterable[Cost]) -> Cost:
    """The cost of consecutive stages: the sum of times, the maximum of memory."""
    known = list(stages)
    return Cost(
        sum(stage.seconds for stage in known),
        max((stage.memory_bytes for stage in known), default=0.0),
        max((stage.device_bytes for stage in known), default=0.0),
    )


def by_stage(stages: Iterable[StageCost], least: float = 0.1) -> str:
    """In brackets, the stages that take at least this share of the time, in order; empty if there is only one stage."""
    known = list(stages)
    seconds = sum(stage.seconds for stage in known)
    long = [stage for stage in known if stage.seconds >= least * seconds]
    if len(long) < 2:
        return ""
    return f" ({', '.join(f'{stage.name} {duration(stage.seconds)}' for stage in long)})"


def estimate(
    folder: ModelFolder,
    texts: Texts,
    *,
    device: torch.device,
    options: MeasureOptions = MeasureOptions(),
    candidates: int = 1,
) -> Cost:
    """The cost of loading the original and measuring this many candidates beside it, each in memory, in every language."""
    costs = CostModel.of(folder, options, device)
    return total([costs.loading(), costs.measuring(texts, candidates)])


def require_memory(cost: Cost, device: torch.device, *, beside: Sequence[Cost] = ()) -> None:
    """Raise an error if memory does not suffice for this process and for workers `beside` it, some of which use the same GPU."""
    host = cost.memory_bytes + sum(worker.memory_bytes for worker in beside)
    needs = [("memory", host, free_memory(torch.device("cpu")))]
    if device.type == "cuda":
        sharing_it = sharing(len(beside), torch.cuda.device_count())
        shared = cost.device_bytes + sum(worker.device_bytes for worker in beside[:sharing_it])
        needs.append(("GPU memory", shared, free_memory(device)))
    for kind, needed, free in needs:
        if free is not None and needed > free:
            workers = f" with {len(beside)} workers" if beside else ""
            fewer = "give fewer --workers, " if beside else ""
            raise TooLittleMemory(
                f"this needs about {_gigabytes(needed)} of {kind}{workers} and {_gigabytes(free)} are free: "
                f"{fewer}close other programs, or use a smaller model or a machine with more {kind}"
            )


@dataclass(frozen=True)
class _Sample:
    """Prepared passages of a language, and their mean size."""

    prepared: list[ScoredPassage]
    mean_bytes: float


@dataclass
class CostModel:
    """Cost of passing texts through a model on this machine, in numbers of type `dtype`. `model` has no weights; its tokenizer prepares samples
    of the texts.
    """

    model: LanguageModel
    shape: ModelShape
    speed: Speed
    options: MeasureOptions
    device: torch.device
    dtype: torch.dtype
    placement: Placement = field(default_factory=Placement)
    _samples: dict[tuple[str, bool], _Sample] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls,
        folder: ModelFolder,
        options: MeasureOptions,
        device: torch.device,
        limits: MemoryLimits = MemoryLimits(),
        demand: Demand = Demand(),
    ) -> CostModel:
        model = skeleton(folder)
        shape = ModelShape.of(model.kind, model.anatomy)
        dtype = computing_dtype(model, device, named_dtype(options.dtype))
        speed = measure_speed(device, dtype, shape.width, shape.widest)
        placement = place_weights(shape, device, limits, dtype.itemsize, demand)
        return cls(model, shape, speed, options, device, dtype, placement)

    @property
    def number_bytes(self) -> int:
        """Bytes per weight of a model."""
        return self.dtype.itemsize

    @property
    def model_bytes(self) -> int:
        return self.number_bytes * self.shape.parameters

    @property
    def _placed_bytes(self) -> int:
        """Those of its weights that are on the device."""
        return min(self.model_bytes, self.placement.most_bytes or self.model_bytes)

    @property
    def unpinned_bytes(self) -> int:
        """Those of its offloaded weights that are not in pinned memory: they lie in files, or in host memory if they were dequantized."""
        return max(0, self.model_bytes - self._placed_bytes - self.placement.pinned_bytes)

    # Texts

    @property
    def batch_tokens(self) -> int:
        """Like `laaciq.scoring.likelihood.batch_tokens`, for the device where the model will be."""
        return tokens_per_batch(self.shape.vocabulary, on_cpu=self._on_cpu)

    def scored(self, texts: Texts) -> Reading:
        """All languages together, as in scoring."""
        return self._reading(list(texts.by_language.values()), scored=True)

    def read(self, texts: Texts) -> Reading:
        """All languages together, as in calibration."""
        most = max(READ_TOKENS, self.batch_tokens)
        return self._reading(list(texts.by_language.values()), scored=False, most_tokens=most)

    def in_batches(self, texts: Texts, most_tokens: int) -> Reading:
        """All languages together, in batches of at most this many padded tokens; with 1, every sequence in a separate batch."""
        return self._reading(list(texts.by_language.values()), scored=True, most_tokens=most_tokens)

    def _reading(self, texts: list[Passages], *, scored: bool, most_tokens: int | None = None) -> Reading:
        pool: list[ScoredPassage] = []
        sampled_bytes = 0.0
        for passages in texts:
            sample = self._sample(passages, scored=scored)
            pool += [sample.prepared[number % len(sample.prepared)] for number in range(len(passages))]
            sampled_bytes += sample.mean_bytes * len(passages)
        whole = sum(passages.byte_count for passages in texts)
        return Reading.of(pool, most_tokens or self.batch_tokens) * (whole / sampled_bytes) if pool else Reading()

    def _sample(self, passages: Passages, *, scored: bool) -> _Sample:
        """A sample of the language, from the first texts in it."""
        key = (passages.language.code, scored)
        if key not in self._samples and len(passages):
            some = passages.spread(SAMPLED)
            prepare = prepare_all if scored else prepare_whole
            self._samples[key] = _Sample(prepare(self.model, some, self.options), some.byte_count / len(some))
        return self._samples.get(key, _Sample([], 0.0))

    # Stages

    def stage(
        self,
        name: str,
        work: Work,
        *,
        models: float = 1.0,
        logits: float = 0.0,
        more_bytes: float = 0.0,
        readings: float = 0.0,
    ) -> StageCost:
        """The cost of `work` with this many `models` in memory, logits of this many of them at a time, and `more_bytes` on the model's
        device. `readings` is how often the blocks are read: those in pinned memory while others compute, those in files in addition. Candidates
        wait for codes in host memory.
        """
        whole, there = self.model_bytes, self._placed_bytes
        # Models with plain weights; beside them, packed candidates have two blocks at a time on the device.
        plain = min(models, 2.0) if self.placement.pair else 1.0
        each = 2 * whole / self.shape.blocks if self.placement.packed else whole
        # An accelerator's logits are computed in 16 bits and compared in 32.
        size = plain * there + (models - plain) * each + more_bytes
        size += logits * self._logits_bound * (1.0 if self._on_cpu else 1.5)
        if self._on_cpu:
            return StageCost(work.seconds(self.speed), _BASE_BYTES + size, name=name)
        # The codes of one packed candidate are on the GPU unless they are away, those of others in host memory.
        codes = packed_bytes(self.shape) if self.placement.packed else 0.0
        near = 0.0 if self.placement.away else min(models - plain, 1)
        away = (models - plain - near) * codes
        pinned = plain * (whole - there - self.unpinned_bytes)
        in_files = _MAPPED if self.model.folder.is_plain else 1.0
        work = work + Work(
            copied=readings * plain * in_files * self.unpinned_bytes,
            pinned=readings * away,
            prefetched=readings * pinned,
        )
        device_bytes = taken_bytes(size + near * codes, self.device)
        memory = _CUDA_BYTES + pinned + away + (0.0 if self.model.folder.is_plain else self.unpinned_bytes)
        return StageCost(work.seconds(self.speed), memory, device_bytes, name=name)

    def loading(self, folder: ModelFolder | None = None) -> StageCost:
        """Reading weights from disk and checking them for NaN; of another model of this shape if its `folder` is given."""
        shape, folder = self.shape, folder or self.model.folder
        work = Work(elements=_LOAD_ELEMENTS * shape.parameters, calls=_LOAD_CALLS)
        if folder.gguf_file is not None:
            work = work + Work(elements=_GGUF_ELEMENTS * shape.parameters, calls=_GGUF_TOKEN_CALLS * shape.vocabulary)
        files = sum(path.stat().st_size for path in folder.weight_files)
        if self.device.type != "cpu":
            stage = self.stage("loading", work + Work(copied=self.model_bytes))
            # Tensor by tensor, from files that are mapped; what is quantized is in host memory as a whole before it is moved.
            whole = 0 if folder.is_plain else files if folder.is_ours else self.model_bytes
            return replace(stage, memory_bytes=max(stage.memory_bytes, _CUDA_BYTES + whole))
        stage = self.stage("loading", work, more_bytes=files)
        # Read in host memory first.
        return replace(stage, memory_bytes=max(stage.memory_bytes, _BASE_BYTES + files))

    def profiling(self, texts: Texts) -> StageCost:
        """Scanning the weights and reading every language once, with the jackknifed spectrum of its last block."""
        shape, reading, spectra = self.shape, Reading(), Work()
        for passages in texts.by_language.values():
            of_language = self._reading([passages], scored=False)
            reading = reading + of_language
            size = min(shape.width, of_language.read)
            each = Work(factorizations=_EIGENVALUES * size**3, calls=0.0 if self._on_cpu else _EIGENVALUE_CALLS * size)
            spectra = spectra + each * (2 * (1 + FOLDS))
        watched = sum(
            (inputs + outputs) * share
            for block, shares in zip(shape.matrices, shape.shares, strict=True)
            for (outputs, inputs), share in zip(block, shares, strict=True)
        )
        hooks = Work(elements=6 * watched * reading.tokens, calls=30 * sum(map(len, shape.matrices)) * reading.batches)
        # In float64, at half the speed.
        squares = Work(products=2 * 2 * shape.width**2 * reading.read)
        scan = Work(elements=60 * shape.parameters, copied=_MAPPED * self.model_bytes)
        work = scoring(shape, reading, 0, on_cpu=self._on_cpu) + hooks + squares + spectra + scan
        logits, sums = min(1.0, self._logits_share(reading)), 8 * FOLDS * shape.width**2
        return self.stage("profile", work, logits=logits, more_bytes=sums, readings=reading.batches)

    def measuring(
        self,
        texts: Texts,
        candidates: int = 1,
        *,
        served: Iterable[str] | None = None,
        beside: ModelFolder | None = None,
    ) -> StageCost:
        """Measuring language by language. Languages that are not `served` (None: all are) are measured on a few passages. The candidate may be
        another model, `beside`.
        """
        chosen = None if served is None else set(served)
        reading = Reading()
        for code, passages in texts.by_language.items():
            if chosen is None or code in chosen:
                probe = passages.spread(SERVED_PROBE)
                rest = passages.at(range(max(0, len(passages) - len(probe))))
                reading = reading + self._reading([probe], scored=True) + self._reading([rest], scored=True)
            else:
                reading = reading + self._reading([passages.spread(SERVED_PROBE)], scored=True)
        applied = Work(elements=60 * candidates * self.shape.parameters)
        work = scoring(self.shape, reading, candidates, on_cpu=self._on_cpu) + applied
        logits = 2 * self._logits_share(reading)
        stage = self.stage("measuring", work, models=1 + candidates, logits=logits, readings=reading.batches)
        dequantized = beside is not None and not beside.is_plain and not self._on_cpu
        return replace(stage, memory_bytes=stage.memory_bytes + self.unpinned_bytes) if dequantized else stage

    def _logits_share(self, reading: Reading) -> float:
        """The share of the bound that the largest batch of these texts takes."""
        return min(1.0, 4 * self.shape.vocabulary * reading.targets / self._logits_bound)

    @property
    def _on_cpu(self) -> bool:
        return self.device.type == "cpu"

    @property
    def _logits_bound(self) -> int:
        return 4 * self.shape.vocabulary * self.batch_tokens


def _gigabytes(count: float) -> str:
    return f"{count / 2**30:.1f} GB"
