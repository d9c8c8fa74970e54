"""Making a `Profile`: the weights are scanned once, and every language is read once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import numpy as np

from laaciq.corpus import Passages, Split, Texts
from laaciq.engine.progress import Progress
from laaciq.engine.store import MemoryStore, Store, key_of
from laaciq.errors import BrokenTexts
from laaciq.models import LanguageModel
from laaciq.models.architecture import architecture_facts
from laaciq.models.computing import device_kind
from laaciq.options import MeasureOptions
from laaciq.profiling.activations import Activations, collect
from laaciq.profiling.alignment import Alignment, alignment
from laaciq.profiling.effective import ColumnSums
from laaciq.profiling.redundancy import predictive_redundancy, spectral_redundancy
from laaciq.profiling.results import (
    Architecture,
    BlockWeights,
    ComponentWeights,
    LanguageActivations,
    Profile,
    pack_floats,
)
from laaciq.profiling.routing import routing_shares
from laaciq.profiling.superweights import super_weights
from laaciq.profiling.tokenization import tokenization
from laaciq.profiling.weights import WeightStatistics, pooled_moments, scan_weights, tensor_statistics
from laaciq.scoring.likelihood import bits_per_byte
from laaciq.strict import StrictModel

PIVOT = "eng"


class _LanguageProfile(StrictModel):
    """The result for one language, stored so that an interrupted profile can resume."""

    activations: LanguageActivations
    alignment: Alignment | None


def profile_model(
    model: LanguageModel,
    texts: Texts,
    options: MeasureOptions,
    *,
    outlier_kurtosis: float,
    exposure: Mapping[str, int] | None = None,
    store: Store | None = None,
    progress: Progress | None = None,
) -> Profile:
    """The profile of `model` on `texts`. Languages in the `store` are not read again."""
    progress, store, exposure = progress or Progress(), store or MemoryStore(), exposure or {}
    for passages in texts.by_language.values():
        if not len(passages):
            raise BrokenTexts(
                f"no calibration text in {passages.language.name} ({passages.language.code}): give more passages"
            )
    tensors = _scan(model, progress)
    blocks = _blocks(model, tensors, outlier_kurtosis)
    reader = _Reader(model, texts, options, blocks, exposure)
    read = []
    with progress.stage("reading", len(texts.languages)) as advance:
        for code in texts.languages:
            measured = (model.folder.fingerprint, texts.fingerprint, code, options.model_dump(), outlier_kurtosis)
            key = key_of("read", measured, exposure.get(code), device_kind(model.device), str(model.module.dtype))
            read.append(store.result(f"languages/{code}.json", _LanguageProfile, key, partial(reader.read, code)))
            advance(1)
    sample = texts[PIVOT if PIVOT in texts.languages else texts.languages[0]].texts[0]
    return Profile(
        model=model.folder.name,
        texts=texts.name,
        parallel=texts.parallel,
        sampled=texts.sampled,
        outlier_kurtosis=outlier_kurtosis,
        architecture=Architecture.model_validate(architecture_facts(model)),
        tensors=list(tensors.values()),
        components=_components(model, tensors),
        blocks=blocks,
        super_weights=super_weights(model, sample),
        languages=[result.activations for result in read],
        tokenization=tokenization(model.tokenizer, texts),
        alignment=[result.alignment for result in read if result.alignment is not None],
    )


def _scan(model: LanguageModel, progress: Progress) -> dict[str, WeightStatistics]:
    """Weight statistics by parameter name: from the files or, for tensors with other names there (GGUF, renamed, quantized), from the
    loaded model.
    """
    parameters = {name: p for name, p in model.module.named_parameters() if p.ndim > 1}
    scanned: dict[str, WeightStatistics] = {}
    readable = all(path.suffix == ".safetensors" for path in model.folder.weight_files)
    if readable and model.folder.quantization is None:
        size = sum(path.stat().st_size for path in model.folder.weight_files)
        with progress.stage("scanning weights, bytes", size) as advance:
            scanned = scan_weights(model.folder, advance=advance)
    return {
        name: scanned[name] if name in scanned else tensor_statistics(name, parameter.detach())
        for name, parameter in parameters.items()
    }


def _blocks(
    model: LanguageModel, tensors: Mapping[str, WeightStatistics], outlier_kurtosis: float
) -> list[BlockWeights]:
    blocks = []
    for index, name in enumerate(model.anatomy.block_names):
        block_tensors = [tensors[linear.name] for linear in model.anatomy.linears if linear.block == index]
        pooled = pooled_moments(block_tensors)
        blocks.append(
            BlockWeights(
                block=index,
                name=name,
                sigma=pooled.sigma,
                kurtosis=pooled.kurtosis,
                mean_tensor_kurtosis=float(np.mean([tensor.kurtosis for tensor in block_tensors])),
                max_tensor_kurtosis=max(tensor.kurtosis for tensor in block_tensors),
                outlier=pooled.kurtosis > outlier_kurtosis,
            )
        )
    return blocks


def _components(model: LanguageModel, tensors: Mapping[str, WeightStatistics]) -> list[ComponentWeights]:
    members: dict[str, list[WeightStatistics]] = {}
    for linear in model.anatomy.linears:
        members.setdefault(linear.component, []).append(tensors[linear.name])
    for part in model.anatomy.tensors:
        if part.role in ("embedding", "head") and part.name in tensors:
            members.setdefault(f"{part.role}s" if part.role == "embedding" else part.role, []).append(
                tensors[part.name]
            )
    pooled = {component: pooled_moments(part_tensors) for component, part_tensors in members.items()}
    return [
        ComponentWeights(component=component, count=m.count, mean=m.mean, sigma=m.sigma, kurtosis=m.kurtosis)
        for component, m in pooled.items()
    ]


class _Reader:
    """Reads languages one at a time, and keeps the English vectors that others are aligned with."""

    def __init__(
        self,
        model: LanguageModel,
        texts: Texts,
        options: MeasureOptions,
        blocks: list[BlockWeights],
        exposure: Mapping[str, int],
    ) -> None:
        self.model, self.texts, self.options, self.blocks, self.exposure = model, texts, options, blocks, exposure
        self.columns: dict[str, ColumnSums] = {}
        self.pivot: np.ndarray | None = None

    def read(self, code: str) -> _LanguageProfile:
        passages = self.texts[code]
        activations = collect(self.model, passages, self.options)
        aligned = None
        # Retrieval needs at least two passages.
        if self.texts.parallel and PIVOT in self.texts.languages and len(passages) > 1:
            vectors = {PIVOT: self._pivot_vectors(code, activations), code: activations.passage_vectors}
            aligned = next((a for a in alignment(vectors, pivot=PIVOT) if a.language == code), None)
        return _LanguageProfile(activations=self._summary(passages, activations), alignment=aligned)

    def _pivot_vectors(self, code: str, activations: Activations) -> np.ndarray:
        if code == PIVOT:
            self.pivot = activations.passage_vectors
        elif self.pivot is None:
            self.pivot = collect(self.model, self.texts[PIVOT], self.options).passage_vectors
        return self.pivot

    def _summary(self, passages: Passages, activations: Activations) -> LanguageActivations:
        norms = activations.norms
        fractions = norms / norms.sum()
        outlier = np.array([block.outlier for block in self.blocks])
        kurtosis = np.array([block.kurtosis for block in self.blocks])
        read = {name: max(tokens, 1) for name, tokens in activations.linear_tokens.items()}
        means = {name: sums / read[name] for name, sums in activations.input_square_sums.items()}
        code = passages.language.code
        return LanguageActivations(
            language=code,
            passages=len(passages),
            tokens=activations.tokens,
            bits_per_byte=None
            if activations.nll is None
            else float(bits_per_byte(activations.nll, activations.scored_bytes)),
            norms=norms.tolist(),
            fractions=fractions.tolist(),
            outlier_fraction=float(fractions[outlier].sum()),
            effective_kurtosis=float(fractions @ kurtosis),
            component_norms={name: total / read[name] for name, total in activations.output_norm_sums.items()},
            input_moments={name: pack_floats(mean) for name, mean in means.items()},
            effective_weights={name: self._columns(name).effective(mean) for name, mean in means.items()},
            sink_share=activations.sinks / activations.tokens,
            sink_norms=(activations.sink_norm_sums / activations.sinks).tolist() if activations.sinks else None,
            spectral_redundancy=spectral_redundancy(activations.last_block)
            if activations.last_block is not None
            else None,
            exposure_tokens=self.exposure.get(code),
            routing=routing_shares(self.model.anatomy, activations.linear_tokens),
        )

    def _columns(self, name: str) -> ColumnSums:
        """Column sums of a linear layer's weights, computed once for all languages."""
        if not self.columns:
            for block in range(len(self.blocks)):
                linears = [linear for linear in self.model.anatomy.linears if linear.block == block]
                with self.model.present(block):
                    self.columns |= {linear.name: ColumnSums.of(linear.matrix) for linear in linears}
        return self.columns[name]


def with_predictive_redundancy(
    profile: Profile, model: LanguageModel, split: Split, options: MeasureOptions, *, progress: Progress | None = None
) -> Profile:
    """The profile with predictive redundancy of the outlier blocks or, if there are none, of the three blocks with the largest κ.

    Unigrams are fitted on calibration text, and losses are measured on validation text. Both may be used for choices.
    """
    progress = progress or Progress()
    ranked = sorted(profile.blocks, key=lambda block: -block.kurtosis)
    blocks = profile.outlier_blocks or sorted(block.block for block in ranked[:3])
    measured = []
    with progress.stage("predictive redundancy", len(profile.languages)) as advance:
        for result in profile.languages:
            one = [result.language]
            redundancy = predictive_redundancy(
                model, split.validation.select(one), split.calibration.select(one), blocks, options
            )
            share = redundancy[result.language]
            # NaN if the model predicts no better than unigrams: it then has no information to attribute.
            measured.append(result.model_copy(update={"predictive_redundancy": None if math.isnan(share) else share}))
            advance(1)
    return profile.model_copy(update={"languages": measured, "predictive_blocks": blocks})
