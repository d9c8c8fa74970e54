"""What training does: variants of one model that differ in one option, each with several seeds. Compared seed by seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from laaciq.corpus.families import family
from laaciq.lab.claim import Claim
from laaciq.lab.evidence import Evidence
from laaciq.lab.findings import Bars, Finding, NotApplicable, Points, TooFew
from laaciq.lab.language_rules import correlation
from laaciq.lab.rules import Claimed, from_error
from laaciq.stats.estimate import Estimate
from laaciq.studies.variants import Variant, VariantLosses, Variants

BITS = 4
BASE, FLAT, STEEP = "base", "flat-exposure", "steep-exposure"
NO_DECAY, BALANCED, EXTRA_LOGIT = "no-decay", "balanced", "softmax1"
# Fewer seeds have no interval.
FEWEST_SEEDS = 3


def _ratio(words: str, side: str) -> Claimed:
    claimed = 0.5 if side == "below" else 2.0
    return Claimed(statistic=f"disparity {words}", threshold=1.0, side=side, claimed=claimed)  # type: ignore[typeddict-item]


def _kurtosis(words: str, side: str) -> Claimed:
    claimed = -1.0 if side == "below" else 1.0
    return Claimed(statistic=f"max κ {words}", threshold=0.0, side=side, claimed=claimed)  # type: ignore[typeddict-item]


BALANCE = _ratio("with a penalty on imbalance, over that without", "below")
IMBALANCE = Claimed(statistic="imbalance with a penalty, over that without", threshold=1.0, side="below", claimed=0.5)
EXPOSURE = _ratio("after steep exposure, over that after flat", "above")
SOFTMAX = _ratio("with an extra logit in the softmax, over that without", "below")
DECAY = _kurtosis("without weight decay, minus that with it", "above")
MIX = _kurtosis("after flat exposure, minus that after steep", "below")
SINKLESS = _kurtosis("with an extra logit in the softmax, minus that without", "below")
USE = Claimed(statistic="r(change of log exposure, change of R̂)", threshold=0.5, side="above", claimed=0.8)
LOSS = Claimed(statistic="r(change of log exposure, change of D)", threshold=0.0, side="below", claimed=-0.6)


def pairs(evidence: Evidence, left: str, right: str) -> list[tuple[Variant, Variant]]:
    """Both variants by seed."""
    figures: Variants = evidence["variants"]
    of_right = {variant.seed: variant for variant in figures.of(right)}
    found = [(variant, of_right[variant.seed]) for variant in figures.of(left) if variant.seed in of_right]
    if len(found) < FEWEST_SEEDS:
        raise TooFew(f"{left} and {right} have {len(found)} seeds in common", f"at least {FEWEST_SEEDS}")
    return found


def _losses(variant: Variant) -> VariantLosses:
    found = variant.at(BITS)
    if found is None:
        raise TooFew(f"{variant.name} was not measured at {BITS} bits", "measure it again")
    return found


def compare_disparities(evidence: Evidence, left: str, right: str, claim: Claimed) -> Finding:
    """max D − min D over the languages that have a D in all variants and seeds of both: training that starves languages must not seem fair
    because they are left out.
    """
    both = [variant for pair in pairs(evidence, left, right) for variant in pair]
    codes = [c for c in evidence["variants"].languages if all(_losses(v).degradation.get(c) for v in both)]
    if len(codes) < 2:
        raise TooFew(f"{left} and {right} have no two languages that all of them serve", "longer training")

    def disparity(variant: Variant) -> float:
        return float(np.ptp([_degradation(variant, code) for code in codes]))

    found = compare(evidence, left, right, disparity, claim, ratio=True)
    return found.model_copy(update={"note": f"{found.note} In the {len(codes)} languages that all of them serve."})


def _imbalance(variant: Variant) -> float:
    return float(np.mean(list(variant.imbalance.values())))


def compare(
    evidence: Evidence, left: str, right: str, value: Callable[[Variant], float], claim: Claimed, *, ratio: bool
) -> Finding:
    """The mean over seeds of a paired difference, or of a ratio on the logarithmic scale, with Student's t."""
    both = [(value(a), value(b)) for a, b in pairs(evidence, left, right)]
    if ratio and min(map(min, both)) <= 0:
        raise TooFew("a value is 0, so that there is no ratio", "longer training, or fewer bits")
    changes = np.array([np.log(a / b) if ratio else a - b for a, b in both])
    error = float(changes.std(ddof=1) / np.sqrt(len(changes)))
    mean = float(changes.mean())
    sides = [
        Estimate(value=float(np.mean(v)), low=float(np.min(v)), high=float(np.max(v))) for v in zip(*both, strict=True)
    ]
    return from_error(
        float(np.exp(mean)) if ratio else mean,
        error,
        freedom=len(changes) - 1,
        claim=claim,
        languages=len(changes),
        scale="log" if ratio else "plain",
        plot=Bars(names=[left, right], values=sides, label="mean and range over seeds"),
        note=f"Over {len(changes)} seeds.",
    )


def _change_of_use(evidence: Evidence) -> Finding:
    if not any(variant.outlier_blocks for pair in pairs(evidence, STEEP, FLAT) for variant in pair):
        raise NotApplicable("no variant has an outlier block, so R̂ is 0", "training that makes blocks of κ above 50")
    return follow_exposure(evidence, lambda variant, code: variant.outlier_fraction[code], USE, "R̂")


def _degradation(variant: Variant, code: str) -> float:
    found = _losses(variant).degradation.get(code)
    return float("nan") if found is None else found.value


def follow_exposure(evidence: Evidence, value: Callable[[Variant, str], float], claim: Claimed, label: str) -> Finding:
    """r over languages: how much more a language was shown in the steep mix, and what that changed on average over seeds."""
    both = pairs(evidence, STEEP, FLAT)
    codes = evidence["variants"].languages
    shown = np.array([np.mean([np.log(a.exposure[c] / b.exposure[c]) for a, b in both]) for c in codes])
    change = np.array([np.mean([value(a, c) - value(b, c) for a, b in both]) for c in codes])
    known = ~np.isnan(change)
    names = [code for code, is_known in zip(codes, known, strict=True) if is_known]
    plot = Points(
        x=shown[known].tolist(), y=change[known].tolist(), names=names,
        x_label="log exposure, steep over flat", y_label=f"change of {label}",
    )  # fmt: skip
    return correlation(shown[known], change[known], [family(c) or c for c in names], claim=claim, plot=plot)


def _max_kurtosis(variant: Variant) -> float:
    return variant.max_kurtosis


def _claim(name: str, words: str, place: str, rule: str, decide: Callable[[Evidence], Finding]) -> Claim:
    return Claim(name, words, place, ("variants",), rule, decide)


_FRAMEWORK, _REFINED, _FINDINGS = "Theoretical Framework, 6.1", "Refined Theory, 6.1", "Phase 4 Findings, Next Steps"
CLAIMS = (
    _claim(
        "balance-lowers-disparity",
        "Regularization that penalizes activation imbalance. Expected result: Lower disparity after quantization.",
        _FRAMEWORK,
        "Over seeds, disparity at 4 bits of the model trained with the penalty lies below that without: the ratio lies below 1.",
        lambda evidence: compare_disparities(evidence, BALANCED, BASE, BALANCE),
    ),
    _claim(
        "penalty-balances",
        "Encourage uniform layer usage during training.",
        _FRAMEWORK,
        "Over seeds, L·Σ ā² − 1 with the penalty lies below that without: the ratio lies below 1. (Else the claim before is not tested.)",
        lambda evidence: compare(evidence, BALANCED, BASE, _imbalance, IMBALANCE, ratio=True),
    ),
    _claim(
        "decay-prevents-outliers",
        "Regularization: weight decay prevents outliers.",
        _REFINED,
        "Over seeds, max κ without weight decay exceeds that with it: the difference lies above 0.",
        lambda evidence: compare(evidence, NO_DECAY, BASE, _max_kurtosis, DECAY, ratio=False),
    ),
    _claim(
        "balanced-data-prevent-outliers",
        "Training data: more balanced across languages.",
        _REFINED,
        "Over seeds, max κ after flat exposure lies below that after steep exposure: the difference lies below 0.",
        lambda evidence: compare(evidence, FLAT, STEEP, _max_kurtosis, MIX, ratio=False),
    ),
    _claim(
        "exposure-causes-disparity",
        "Training data volume creates specialization: languages activate outlier layers differently.",
        "Refined Theory, 2.2, M2",
        "Over seeds, disparity at 4 bits after steep exposure exceeds that after flat exposure: the ratio lies above 1.",
        lambda evidence: compare_disparities(evidence, STEEP, FLAT, EXPOSURE),
    ),
    _claim(
        "exposure-causes-use",
        "More data → higher outlier activation → higher κ_eff: r(training_tokens, ā_outlier) > 0.5.",
        "Mathematical Summary, Predictions, 3; Refined Theory, 5.3",
        "Over languages, r of the change of log exposure with the change of R̂ lies above 0.5.",
        _change_of_use,
    ),
    _claim(
        "exposure-lowers-loss",
        "Languages with more training data develop representations that USE these layers: lower degradation.",
        "Theoretical Framework, 3.1",
        "Over languages, r of the change of log exposure with the change of D at 4 bits lies below 0.",
        lambda evidence: follow_exposure(evidence, _degradation, LOSS, "D"),
    ),
    _claim(
        "attention-without-sinks",
        "Softpick attention: eliminate sinks at architecture level. Prevent outlier formation.",
        _FINDINGS,
        "Over seeds, max κ with an extra logit of zero in the softmax lies below that without: the difference lies below 0.",
        lambda evidence: compare(evidence, EXTRA_LOGIT, BASE, _max_kurtosis, SINKLESS, ratio=False),
    ),
    _claim(
        "attention-lowers-disparity",
        "Training-time intervention: prevent outlier formation, and with it disparity.",
        _FINDINGS,
        "Over seeds, disparity at 4 bits with an extra logit of zero in the softmax lies below that without: the ratio lies below 1.",
        lambda evidence: compare_disparities(evidence, EXTRA_LOGIT, BASE, SOFTMAX),
    ),
)
