"""Data of as many languages as the lab has, for rules and claims."""

from dataclasses import replace

import numpy as np

from laaciq.corpus import Passages, Texts, language
from laaciq.corpus.families import family
from laaciq.evaluation.results import Disparity
from laaciq.lab.evidence import Evidence, ProfileTable
from laaciq.lab.measurements import MEASUREMENTS
from laaciq.lab.measurements.block_sets import BlockSets, chosen_sets
from laaciq.stats.estimate import Estimate
from laaciq.studies.outcomes import outcomes
from laaciq.studies.variants import Variant, VariantLosses, Variants
from laaciq.trials.losses import Losses

_CODES = "ara ben deu ell eng eus fas fin fra heb hin hun ind ita jpn kat kaz kor mar nld pol por ron rus spa swa swe tam tel tha tur ukr"
CODES = _CODES.split()
FAMILIES = [family(code) or code for code in CODES]


def correlated(r, random, count=len(CODES)):
    """Two columns of `count` languages with the true correlation r."""
    x, z = random.standard_normal((2, count))
    return x, r * x + np.sqrt(1 - r**2) * z


def losses(means, random, *, noise=0.1, shared=None, documents=8, tokens=40):
    """ΔNLL per token about `means`; two with the same `shared` noise come from the same documents."""
    common = random.standard_normal((len(means), documents)) if shared is None else shared
    own = random.standard_normal((len(means), documents))
    per_token = np.asarray(means)[:, None] * (1 + noise * (0.9 * common + 0.4 * own))
    codes = CODES[: len(means)]
    names = [f"d{number}" for number in range(documents)]
    return Losses.of(
        dict(zip(codes, per_token * tokens, strict=True)),
        dict.fromkeys(codes, np.full(documents, tokens)),
        dict.fromkeys(codes, names),
        parallel=False,
        seed=0,
        draws=300,
    )


def table(random, codes=CODES, *, kurtosis=(1.0, 60.0), blocks=12, exposure=True):
    """A profile in which no quantity has to do with any other."""
    count = len(codes)
    fractions = random.dirichlet(np.full(blocks, 400.0), count)
    by_block = random.permutation(np.linspace(*kurtosis, blocks))
    outliers = [block for block in range(blocks) if by_block[block] > 50]
    return ProfileTable(
        codes=list(codes),
        families=[family(code) or code for code in codes],
        scripts=[language(code).script for code in codes],
        exposure=random.lognormal(15, 1, count) if exposure else np.full(count, np.nan),
        outlier_fraction=fractions[:, outliers].sum(1),
        effective_kurtosis=fractions @ by_block,
        weights_kurtosis=random.lognormal(1, 0.1, count),
        fractions=fractions,
        decoder_attention=random.uniform(0.1, 0.2, count),
        fertility=random.lognormal(0.3, 0.2, count),
        alignment=random.uniform(0.2, 0.6, count),
        redundancy=random.uniform(1, 2, count),
        kurtosis=by_block,
        sigma=random.uniform(0.02, 0.03, blocks),
        outlier_blocks=outliers,
        kurtosis_of={"attention": 2.0, "feed-forward": 1.0},
        top_shares={"0.01": 0.0005, "0.1": 0.004, "1": 0.04, "5": 0.16, "10": 0.28},
        super_weight_ratio=1.4,
        kind="causal",
    )


def block_set_losses(random, codes, blocks=12, passages=8):
    """Every set of three blocks protects equally much, whichever it is; noise makes the difference."""
    sets, sample = chosen_sets(blocks, False, 0)
    documents = tuple(f"d{number}" for number in range(passages))
    texts = Texts(
        "simulated", {c: Passages(language(c), ("text",) * passages, documents) for c in codes}, parallel=False
    )
    means = random.lognormal(-2.5, 0.3, len(codes))
    loss = {
        code: 40 * mean * (1 + 0.1 * random.standard_normal((len(sets), passages)))
        for code, mean in zip(codes, means, strict=True)
    }
    tokens = {code: np.full(passages, 40) for code in codes}
    return BlockSets(blocks, sets, sample, outcomes(texts, loss, tokens, draws=300, seed=0))


def evidence(random, codes=CODES, *, sets=True, **of_table):
    """Evidence for all claims, under which nothing has to do with anything: a candidate loses as much as any other, in other languages."""
    profile = table(random, codes, **of_table)
    common = random.standard_normal((len(codes), 8))
    means = random.lognormal(-2.5, 0.3, len(codes))
    candidates = {
        name: losses(means * (1 + 0.02 * random.standard_normal(len(codes))), random, shared=common)
        for name in MEASUREMENTS
    }
    others = {
        "pruned": losses(random.permutation(means), random, shared=common),
        "split-tokens": losses(means, random, shared=common, tokens=60),
        "split-profile": replace(
            profile,
            alignment=profile.alignment + 0.05 * random.standard_normal(len(codes)),
            redundancy=profile.redundancy + 0.05 * random.standard_normal(len(codes)),
        ),
        "equalised-kurtosis": 2.0,
        # As few seeds as languages.
        "variants": variants(random, codes, seeds=3 if len(codes) >= 8 else 2),
    }
    protected = {"block-sets": block_set_losses(random, codes)} if sets else {}
    return Evidence("simulated", {**candidates, "profile": profile, **protected, **others})


def variants(random, codes=CODES, *, seeds=3, changes=None):
    """Training variants that differ from each other by seeds alone, and by `changes`: factors of disparity and imbalance, and what is added
    to the largest κ, that of an outlier block. `use` and `loss` are slopes of R̂ and D in log exposure.
    """
    changes = changes or {}
    flat, steep = (dict(zip(codes, random.lognormal(15, 1, len(codes)), strict=True)) for _ in range(2))
    names = ("base", "flat-exposure", "steep-exposure", "no-decay", "balanced", "softmax1")
    made = []
    for name in names:
        effect = changes.get(name, {})
        exposure = steep if name == "steep-exposure" else flat
        for seed in range(seeds):
            shown = np.log([exposure[code] for code in codes])
            fractions = random.dirichlet(np.full(6, 400.0), len(codes))
            fractions[:, 5] = np.maximum(fractions[:, 5] + changes.get("use", 0.0) * (shown - 15), 1e-3)
            fractions /= fractions.sum(1, keepdims=True)
            degradation = 0.1 + 0.01 * random.standard_normal(len(codes)) + changes.get("loss", 0.0) * (shown - 15)
            kurtosis = [0.1, 0.2, 0.3, 0.4, 0.5, 60.0 + effect.get("kurtosis", 0.0) + 0.1 * random.standard_normal()]
            spread = 0.05 * effect.get("disparity", 1.0) * random.lognormal(0, 0.1)
            # Languages as far apart as the disparity says.
            degradation = 0.1 + (degradation - degradation.mean()) * spread / np.ptp(degradation)
            made.append(_variant(name, seed, codes, exposure, fractions, kurtosis, degradation, spread, effect, random))
    return Variants(variants=made)


def _variant(name, seed, codes, exposure, fractions, kurtosis, degradation, spread, effect, random):
    whole = Estimate(value=spread, low=0.5 * spread, high=1.5 * spread)
    by_code = dict(zip(codes, degradation, strict=True))
    found = Disparity(
        worst=whole, plug_in=whole, noise_floor=0.01, cross_fitted=spread, cross_fitted_worst=0.1, between_deviation=0.01,
        heterogeneity_p=0.5, worst_language=codes[0], best_language=codes[-1],
    )  # fmt: skip
    return Variant(
        name=name,
        seed=seed,
        options={},
        parameters=1,
        tokens_seen=1,
        computed_with={},
        texts="simulated",
        kurtosis=kurtosis,
        outlier_blocks=[5],
        bits_per_byte=dict.fromkeys(codes, 1.0),
        exposure={code: int(tokens) for code, tokens in exposure.items()},
        fractions=dict(zip(codes, fractions.tolist(), strict=True)),
        effective_kurtosis=dict.fromkeys(codes, 1.0),
        outlier_fraction=dict(zip(codes, fractions[:, 5].tolist(), strict=True)),
        imbalance=dict.fromkeys(codes, effect.get("imbalance", 1.0) * random.lognormal(0, 0.05)),
        sink_share=dict.fromkeys(codes, 0.0),
        losses=[
            VariantLosses(
                bits=4,
                degradation={code: Estimate(value=d, low=d, high=d) for code, d in by_code.items()},
                mean=0.1,
                disparity=found,
                not_served=[],
            )
        ],
    )
