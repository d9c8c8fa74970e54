"""Quantizing in memory, one copy at a time: the twin wears what a method made until the next one is asked for."""

from __future__ import annotations

import contextlib
import copy
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata

import numpy as np
import torch

from laaciq.backends.contract import Backend
from laaciq.backends.size import bits_per_weight, left_alone_in_blocks
from laaciq.commands.plan import PROFILED, decide, needs_text, profiled_texts
from laaciq.corpus import Split, Texts
from laaciq.engine.progress import Progress
from laaciq.engine.store import RunFolder, key_of
from laaciq.models import LanguageModel, ModelFolder, load
from laaciq.models.loading import check_finite
from laaciq.options import OUTLIER_KURTOSIS, MeasureOptions, QuantizeOptions
from laaciq.planning.rules import served_languages
from laaciq.profiling.profile import profile_model
from laaciq.profiling.results import Profile
from laaciq.quantization import Calibration
from laaciq.quantization.plan import Plan
from laaciq.quantization.tuning import quantize_model
from laaciq.studies.compared_methods import ComparedMethod
from laaciq.studies.comparison import Made
from laaciq.trials.quantized_copy import copy_of, simulate
from laaciq.version import __version__


@dataclass
class Workshop:
    """The original, which is loaded when it is first needed, its twin, and the texts that methods may read."""

    folder: ModelFolder
    device: str
    split: Split
    options: MeasureOptions
    store: RunFolder
    progress: Progress

    @cached_property
    def original(self) -> LanguageModel:
        return load(self.folder, device=self.device)

    @cached_property
    def twin(self) -> LanguageModel:
        return copy_of(self.original)

    def make(self, compared: ComparedMethod, bits: int) -> tuple[Made, Callable[[str], LanguageModel]]:
        """How it was made, and the twin as it serves a language."""
        # Libraries print what they like; standard output is a program's.
        with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("default")
            if compared.backend is None:
                made, for_language = self._ours(compared.options(bits))
            else:
                made, for_language = self._theirs(compared.backend, bits)
        check_finite(self.twin.module, compared.name)
        notes = dict.fromkeys(str(own.message) for own in caught if own.category is UserWarning)
        return made.model_copy(update={"notes": list(notes)}), for_language

    def _theirs(self, backend: Backend, bits: int) -> tuple[Made, Callable[[str], LanguageModel]]:
        backend.require(bits)
        texts = self._shuffled if backend.reads_text else []
        # As the library's users have it.
        given = copy.deepcopy(self.original.module).to(torch.bfloat16)
        given.name_or_path = str(self.folder.path)
        began = time.perf_counter()
        found = backend.quantize(given, self.original.tokenizer, texts, bits=bits, device=self.original.device.type)
        seconds = time.perf_counter() - began
        simulate(self.original, self.twin, [])
        found.put_into(self.twin.module)
        anatomy = self.original.anatomy
        block_bits, model_bits = bits_per_weight(found, anatomy)
        made = Made(
            by=_version(backend.library),
            settings=found.settings,
            block_bits_per_weight=block_bits,
            model_bits_per_weight=model_bits,
            layers=len(anatomy.linears),
            left_alone=left_alone_in_blocks(found, anatomy),
            seconds=seconds,
        )
        return made, lambda code: self.twin

    def _ours(self, options: QuantizeOptions) -> tuple[Made, Callable[[str], LanguageModel]]:
        began = time.perf_counter()
        known = None
        if needs_text(options):
            profile = self._profile(profiled_texts(self.split, options))
            known = Calibration(profile, self.split.calibration, self.options, self.split.validation)
        plans, _ = decide(
            self.original, options, known,
            served_bound=self.options.served_bound, store=self.store, progress=self.progress,
        )  # fmt: skip
        plan = plans.first
        with self.progress.stage("quantizing", sum(t.quantized for t in plan.tensors) + plan.tuned) as advance:
            found, others = quantize_model(self.original, plan, known, advance=lambda: advance(1))
            layers = list(found)
        made = Made(
            by=f"laaciq {__version__}",
            settings=_settings(plan, options),
            block_bits_per_weight=plan.size.block_bits_per_weight,
            model_bits_per_weight=plan.size.model_bits_per_weight,
            layers=len(self.original.anatomy.linears),
            seconds=time.perf_counter() - began,
        )

        def for_language(code: str) -> LanguageModel:
            if plan.tables:
                simulate(self.original, self.twin, layers, others=others, table=plan.table_of(code))
            return self.twin

        simulate(self.original, self.twin, layers, others=others)
        return made, for_language

    @cached_property
    def _shuffled(self) -> list[str]:
        """Calibration and validation text of the languages that are served, as all that libraries read is calibration text."""
        served = served_languages(
            self._profile(self.split.calibration.spread(PROFILED)), self.options.served_bound, None
        )
        both = self.split.calibration.joined(self.split.validation).select(served)
        texts = [text for passages in both.by_language.values() for text in passages.texts]
        return [texts[i] for i in np.random.default_rng(self.options.seed).permutation(len(texts))]

    def _profile(self, texts: Texts) -> Profile:
        key = key_of("profile", self.folder.fingerprint, texts.fingerprint, self.options.model_dump())

        def compute() -> Profile:
            return profile_model(
                self.original, texts, self.options, outlier_kurtosis=OUTLIER_KURTOSIS, progress=self.progress
            )

        return self.store.result(f"profiles/{key[:12]}.json", Profile, key, compute)


def _settings(plan: Plan, options: QuantizeOptions) -> str:
    grid = (
        "bits and groups by tensor" if options.budget or plan.method == "planned" else f"groups of {options.group_size}"
    )
    tuned = f", {plan.tuned} epochs of tuning" if plan.tuned else ""
    return f"{grid}{tuned}{'' if plan.weights else ', no text read'}"


def _version(library: str) -> str:
    """Name and version of what is installed under an import name."""
    names = metadata.packages_distributions().get(library.partition(".")[0], [])
    return ", ".join(f"{name} {metadata.version(name)}" for name in sorted(set(names))) or library
