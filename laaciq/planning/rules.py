"""From options to plans: the seeds' strategies, one plan a checkpoint.

A: a calibration a language, each in a checkpoint of its own (`separate`) or as tables of scales. B: more bits where κ is large, or for
attention. C: shared codes with tables by cluster of languages. Protected blocks and kept weights combine with all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

from laaciq.corpus import language
from laaciq.errors import BadOption
from laaciq.models import Anatomy, LinearLayer
from laaciq.options import FULL_BITS, QuantizeOptions
from laaciq.planning.methods import Method, find_method
from laaciq.profiling.results import Profile
from laaciq.profiling.weights import pooled_moments
from laaciq.quantization.plan import Plan, PlanSet, TensorPlan, count_size

OTHERS = "others"


@dataclass(frozen=True)
class Protection:
    """Blocks that get more bits, for some languages or for all (`languages` empty)."""

    languages: tuple[str, ...]
    blocks: frozenset[int]


def make_plans(
    anatomy: Anatomy, options: QuantizeOptions, profile: Profile | None = None, *, served_bound: float = float("inf")
) -> PlanSet:
    """One plan, under the empty name; with `separate`, one for every group of languages.

    Languages that the profile found not to be served (original bits a byte above `served_bound`) decide nothing.
    """
    method = find_method(options.method)
    reads = reads_text(options)
    if profile is None and (reads or options.outlier_bits is not None):
        raise BadOption(f"method {method.name!r} with these options needs a profile of the model: give texts")
    served = [] if profile is None else served_languages(profile, served_bound, options.calibrate)
    if options.tune and method.adaptive:
        raise BadOption("tables of scales are fitted to what layers are given, which tuning changes: leave out --tune")
    protections = [_protection(entry, len(anatomy.block_names)) for entry in options.protect]
    if not options.separate:
        protected = frozenset().union(*(p.blocks for p in protections))
        return PlanSet(plans={"": _plan(anatomy, options, method, profile, served if reads else [], protected)})
    for_all = frozenset().union(*(p.blocks for p in protections if not p.languages))
    groups = {"+".join(p.languages): p for p in protections if p.languages}
    if not groups:
        groups = {code: Protection((code,), frozenset()) for code in served}
    elif rest := [code for code in served if not any(code in p.languages for p in groups.values())]:
        groups[OTHERS] = Protection(tuple(rest), frozenset())
    if missing := [code for group in groups.values() for code in group.languages if code not in served]:
        raise BadOption(f"--protect names {missing[0]}, which has no calibration text or is not served")
    plans = {
        name: _plan(anatomy, options, method, profile, list(group.languages), for_all | group.blocks)
        for name, group in groups.items()
    }
    return PlanSet(plans=plans)


def equal_weights(languages: list[str]) -> dict[str, float]:
    return dict.fromkeys(languages, 1 / len(languages)) if languages else {}


def reads_text(options: QuantizeOptions) -> bool:
    """Does calibration text decide anything?"""
    by_saliency = options.keep > 0 and options.keep_by == "saliency"
    return find_method(options.method).reads_text or options.separate or by_saliency or bool(options.tune)


def reads_profile(options: QuantizeOptions) -> bool:
    """Does the method weigh inputs by what the profile says of them? Second-order rounding looks for itself."""
    by_saliency = options.keep > 0 and options.keep_by == "saliency"
    method = find_method(options.method)
    return reads_text(options) and (method.rounding == "nearest" or method.adaptive or by_saliency)


def _plan(
    anatomy: Anatomy,
    options: QuantizeOptions,
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


def _token_plans(anatomy: Anatomy, options: QuantizeOptions, method: Method) -> list[TensorPlan]:
    """Embeddings and head. What languages put into a layer says nothing of a table that is looked up: no text decides about them."""
    if options.embedding_bits is None:
        return []
    if found := next((matrix.obstacle for matrix in anatomy.token_matrices if matrix.obstacle), None):
        raise BadOption(f"these embeddings cannot be quantized ({found}): leave out --embedding-bits")
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
    anatomy: Anatomy, options: QuantizeOptions, profile: Profile | None, protected: frozenset[int]
) -> dict[str, int]:
    """The most that any rule asks for."""
    found = {linear.name: options.bits for linear in anatomy.linears}
    outliers = set() if options.outlier_bits is None or profile is None else _outliers(anatomy, options, profile)
    for linear in anatomy.linears:
        wanted = [found[linear.name]]
        if linear.block in protected:
            wanted.append(options.protect_bits)
        if linear.name in outliers:
            wanted.append(options.outlier_bits or 0)
        if linear.component == "attention":
            wanted.append(options.attention_bits or 0)
        found[linear.name] = max(wanted)
    return found


def _outliers(anatomy: Anatomy, options: QuantizeOptions, profile: Profile) -> set[str]:
    """Tensors of blocks, or of components of blocks, whose pooled κ is above the threshold."""

    def unit(linear: LinearLayer) -> tuple[object, ...]:
        return (linear.block,) if options.outlier_by == "block" else (linear.block, linear.component)

    statistics = {tensor.name: tensor for tensor in profile.tensors}
    units: dict[tuple[object, ...], list[str]] = {}
    for linear in anatomy.linears:
        units.setdefault(unit(linear), []).append(linear.name)
    return {
        name
        for names in units.values()
        if pooled_moments(statistics[name] for name in names).kurtosis > options.outlier_kurtosis
        for name in names
    }


def _table_count(tensors: list[TensorPlan], overhead: float) -> int:
    """How many tables fit into `overhead` bits a weight."""
    quantized = [tensor for tensor in tensors if tensor.quantized]
    cost = FULL_BITS * sum(t.groups for t in quantized) / sum(t.weights for t in tensors)
    # A hair of tolerance: 0.5 bits buy two tables at 0.25 each.
    count = int(overhead / cost + 1e-9) if quantized else 0
    if not count:
        raise BadOption(f"a table costs {cost:.2f} bits a weight, more than the overhead of {overhead:g}: allow more")
    return count


def cluster_languages(profile: Profile, languages: list[str], count: int) -> list[list[str]]:
    """Languages that use their inputs alike, by Ward's method on √E[x²] of every linear layer's inputs, each layer scaled to length one."""
    if len(languages) <= count:
        return [[code] for code in languages]

    def features(code: str) -> np.ndarray:
        activations = profile[code]
        shapes = [np.sqrt(activations.input_mean_squares(name)) for name in activations.input_moments]
        return np.concatenate([shape / max(float(np.linalg.norm(shape)), 1e-30) for shape in shapes])

    labels = fcluster(linkage(np.stack([features(code) for code in languages]), "ward"), count, "maxclust")
    clusters = [
        [code for code, label in zip(languages, labels, strict=True) if label == own] for own in sorted(set(labels))
    ]
    return sorted(clusters, key=lambda members: languages.index(members[0]))


def served_languages(profile: Profile, bound: float, chosen: Iterable[str] | None) -> list[str]:
    """The languages that decide: those that the model serves, or of them the ones chosen."""
    served = [r.language for r in profile.languages if r.bits_per_byte is None or r.bits_per_byte <= bound]
    if not served:
        raise BadOption(f"no language has {bound:g} bits a byte or less: raise --served-bound or give other texts")
    if chosen is None:
        return served
    codes = [language(name).code for name in chosen]
    if missing := [code for code in codes if code not in served]:
        raise BadOption(f"--calibrate names {missing[0]}, which has no calibration text here or is not served")
    return codes


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
