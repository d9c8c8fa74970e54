"""Plans by rules, from options: one plan per checkpoint, without search or budget.

Strategy A calibrates per language, each in a separate checkpoint (`separate`) or as tables of scales. B gives more bits where κ is large,
or to attention. C shares codes, with tables of scales per cluster of languages. Protected blocks and kept weights combine with all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

from laaciq.corpus import language
from laaciq.errors import BadOption
from laaciq.models import Anatomy, LinearLayer
from laaciq.options import FULL_BITS, WeightOptions, reads_text
from laaciq.options.methods import Method, find_method
from laaciq.profiling.results import Profile
from laaciq.profiling.weights import pooled_moments
from laaciq.quantization.plan import Plan, PlanSet, TensorPlan, count_size

OTHERS = "others"


@dataclass(frozen=True)
class Protection:
    """Blocks that get more bits, for some languages, or for all if `languages` is empty."""

    languages: tuple[str, ...]
    blocks: frozenset[int]


def make_plans(
    anatomy: Anatomy, options: WeightOptions, profile: Profile | None = None, *, served_bound: float = float("inf")
) -> PlanSet:
    """One plan, under the empty name; with `separate`, one per group of languages.

    Only languages that the original serves (at most `served_bound` bits per byte in the profile) and that are not held out affect the
    plans.
    """
    method = find_method(options.method)
    reads = reads_text(options)
    if profile is None and (reads or options.outlier_bits is not None):
        raise BadOption(f"method {method.name!r} with these options needs a profile of the model: give texts")
    deciding = [] if profile is None or not reads else deciding_languages(profile, options, served_bound)
    protections = [_protection(entry, len(anatomy.block_names)) for entry in options.protect]
    if not options.separate:
        protected = frozenset().union(*(p.blocks for p in protections))
        return PlanSet(plans={"": _plan(anatomy, options, method, profile, deciding, protected)})
    for_all = frozenset().union(*(p.blocks for p in protections if not p.languages))
    groups = {"+".join(p.languages): p for p in protections if p.languages}
    if not groups:
        groups = {code: Protection((code,), frozenset()) for code in deciding}
    elif rest := [code for code in deciding if not any(code in p.languages for p in groups.values())]:
        groups[OTHERS] = Protection(tuple(rest), frozenset())
    if missing := [code for group in groups.values() for code in group.languages if code not in deciding]:
        raise BadOption(
            f"--protect names {missing[0]}, which is not served or has no calibration text: name another language"
        )
    plans = {
        name: _plan(anatomy, options, method, profile, list(group.languages), for_all | group.blocks)
        for name, group in groups.items()
    }
    return PlanSet(plans=plans)


def equal_weights(languages: list[str]) -> dict[str, float]:
    return dict.fromkeys(languages, 1 / len(languages)) if languages else {}


def reads_profile(options: WeightOptions) -> bool:
    """True if the method weights inputs by the profile. Second-order rounding measures its inputs itself."""
    by_saliency = options.keep > 0 and options.keep_by == "saliency"
    method = find_method(options.method)
    return reads_text(options) and (method.rounding == "nearest" or method.adaptive or by_saliency)


def _plan(
    anatomy: Anatomy,
    options: WeightOptions,
    method: Method,
    profile: Profile | None,
    languages: list[str],
    protected: frozenset[int],
) -> Plan:
    bits = _bits_by_tensor(anatomy, options, profile, protected)
    tensors = [
        TensorPlan(
            name=linear.name,
            shape=linear.shape,
            bits=bits[linear.name],
            group_size=options.group_size,
            symmetric=options.symmetric,
            clip=method.clip,
            rounding=method.rounding,
            keep=options.keep,
            keep_by=options.keep_by,
            rank=min(options.rank, *linear.shape),
        )
        for linear in anatomy.linears
    ]
    tables: list[list[str]] = []
    if method.adaptive and profile is not None:
        tables = cluster_languages(profile, languages, _table_count(tensors, options.table_overhead))
        tensors = [t.model_copy(update={"tables": len(tables) if t.quantized else 0}) for t in tensors]
    tensors += _token_plans(anatomy, options, method)
    return Plan(
        method=method.name,
        tensors=tensors,
        size=count_size(tensors, anatomy),
        weights=equal_weights(languages),
        tables=tables,
        tuned=options.tune or 0,
    )


def _token_plans(anatomy: Anatomy, options: WeightOptions, method: Method) -> list[TensorPlan]:
    """Plans of embeddings and head. Embeddings are looked up and have no inputs to weight by, so no text is used."""
    if options.embedding_bits is None:
        return []
    if obstacle := next((matrix.obstacle for matrix in anatomy.token_matrices if matrix.obstacle), None):
        raise BadOption(f"these embeddings cannot be quantized ({obstacle}): leave out --embedding-bits")
    return [
        TensorPlan(
            name=matrix.name,
            shape=matrix.shape,
            bits=options.embedding_bits,
            group_size=options.group_size,
            symmetric=options.symmetric,
            clip="mse" if method.reads_text else method.clip,
            used_by=matrix.used_by,
        )
        for matrix in anatomy.token_matrices
    ]


def _bits_by_tensor(
    anatomy: Anatomy, options: WeightOptions, profile: Profile | None, protected: frozenset[int]
) -> dict[str, int]:
    """The largest number of bits that any rule gives each tensor."""
    bits = {}
    outliers = set() if options.outlier_bits is None or profile is None else _outliers(anatomy, options, profile)
    for linear in anatomy.linears:
        candidates = [options.bits]
        if linear.block in protected:
            candidates.append(options.protect_bits)
        if linear.name in outliers:
            candidates.append(options.outlier_bits or 0)
        if linear.component == "attention":
            candidates.append(options.attention_bits or 0)
        bits[linear.name] = max(candidates)
    return bits


def _outliers(anatomy: Anatomy, options: WeightOptions, profile: Profile) -> set[str]:
    """Tensors of blocks, or of components of blocks, whose pooled κ is above the threshold."""

    def pool(linear: LinearLayer) -> tuple[object, ...]:
        return (linear.block,) if options.outlier_by == "block" else (linear.block, linear.component)

    statistics = {tensor.name: tensor for tensor in profile.tensors}
    pools: dict[tuple[object, ...], list[str]] = {}
    for linear in anatomy.linears:
        pools.setdefault(pool(linear), []).append(linear.name)
    return {
        name
        for names in pools.values()
        if pooled_moments(statistics[name] for name in names).kurtosis > options.outlier_kurtosis
        for name in names
    }


def _table_count(tensors: list[TensorPlan], overhead: float) -> int:
    """Number of tables that fit into `overhead` bits per weight."""
    quantized = [tensor for tensor in tensors if tensor.quantized]
    cost = FULL_BITS * sum(t.groups for t in quantized) / sum(t.weights for t in tensors)
    # The tolerance is for rounding: 0.5 bits buy two tables of 0.25 bits.
    count = int(overhead / cost + 1e-9) if quantized else 0
    if not count:
        raise BadOption(
            f"one table costs {cost:.4g} bits per weight, more than --table-overhead {overhead:g}: give a larger one, or larger groups"
        )
    return count


def cluster_languages(profile: Profile, languages: list[str], count: int) -> list[list[str]]:
    """Clusters of languages with similar layer inputs, by Ward's method on √E[x²] of every linear layer's inputs, each scaled to norm one."""
    if len(languages) <= count:
        return [[code] for code in languages]

    def features(code: str) -> np.ndarray:
        activations = profile[code]
        shapes = [np.sqrt(activations.input_mean_squares(name)) for name in activations.input_moments]
        return np.concatenate([shape / max(float(np.linalg.norm(shape)), 1e-30) for shape in shapes])

    labels = fcluster(linkage(np.stack([features(code) for code in languages]), "ward"), count, "maxclust")
    clusters = [
        [code for code, label in zip(languages, labels, strict=True) if label == cluster]
        for cluster in sorted(set(labels))
    ]
    return sorted(clusters, key=lambda members: languages.index(members[0]))


def served_languages(profile: Profile, bound: float) -> list[str]:
    """The languages that the original serves: at most `bound` bits per byte."""
    served = [r.language for r in profile.languages if r.bits_per_byte is None or r.bits_per_byte <= bound]
    if not served:
        raise BadOption(f"no language has {bound:g} bits per byte or less: raise --served-bound or give other texts")
    return served


def held_out(options: WeightOptions) -> list[str]:
    """Codes of the languages that are used neither for calibration nor for validation."""
    return [language(name).code for name in options.hold_out or ()]


def deciding_languages(profile: Profile, options: WeightOptions, served_bound: float) -> list[str]:
    """The languages whose calibration and validation text may be read: served, in --calibration-languages, and not held out."""
    served, held = served_languages(profile, served_bound), held_out(options)
    profiled = [result.language for result in profile.languages]
    if unknown := [code for code in held if code not in profiled]:
        raise BadOption(f"--hold-out names {unknown[0]}, which has no text here: give languages of the texts")
    chosen = [language(name).code for name in options.calibration_languages or served]
    if missing := [code for code in chosen if code not in served]:
        raise BadOption(
            f"--calibration-languages names {missing[0]}, which is not served or has no calibration text: name another language"
        )
    if options.calibration_languages and (both := [code for code in chosen if code in held]):
        raise BadOption(f"--calibration-languages and --hold-out both name {both[0]}: leave it out of one of them")
    if not (deciding := [code for code in chosen if code not in held]):
        raise BadOption("--hold-out leaves no language to calibrate on: hold out fewer")
    return deciding


def _protection(entry: str, blocks: int) -> Protection:
    """`"0,11"` for all languages, `"swa+yor=3,4"` for two."""
    names, separator, numbers = entry.rpartition("=")
    codes = tuple(language(name).code for name in names.split("+")) if separator else ()
    try:
        chosen = frozenset(int(number) for number in numbers.split(","))
    except ValueError:
        raise BadOption(f"--protect {entry!r} names no blocks: write '0,11' or 'swa+yor=3,4'") from None
    if outside := sorted(number for number in chosen if not 0 <= number < blocks):
        raise BadOption(f"--protect {entry!r}: there is no block {outside[0]}; the model has 0 to {blocks - 1}")
    return Protection(codes, chosen)
