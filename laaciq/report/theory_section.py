"""What a run means for the theory, in sentences, and as a figure."""

from __future__ import annotations

from matplotlib.figure import Figure

from laaciq.evaluation.results import Evaluation
from laaciq.evaluation.theory import CLAIMED, Contrast, Families, Quantity, Relation, TheoryFindings
from laaciq.evaluation.verdict import percent
from laaciq.profiling.results import Profile
from laaciq.report.figures import BLUE, new_figure, styled
from laaciq.stats.estimate import Estimate

CLAIM = "The theory: languages that use outlier blocks less (low R̂, low κ_eff) lose more, so r with D is negative."
AXES = {"outlier_fraction": "outlier fraction R̂", "effective_kurtosis": "effective kurtosis κ_eff"}


def theory_sentences(findings: TheoryFindings) -> list[str]:
    """A sentence per relation, contrast and share of families."""
    sentences = _relations(findings) + [_contrast(contrast) for contrast in findings.contrasts]
    return sentences + ([_families(findings.families)] if findings.families else [])


def theory_lines(findings: TheoryFindings) -> list[str]:
    """The same in short: relations in full, and the groups in one sentence."""
    groups = [f"{contrast.left} against {contrast.right} {_signed(contrast.g)}" for contrast in findings.contrasts]
    line = f"Difference of D in standard deviations (Hedges' g): {', '.join(groups)}." if groups else ""
    if (families := findings.families) is not None:
        line += f" Of its variance, {_percent_interval(families.share)} lies between language families."
    return [*_relations(findings), *([line.strip()] if line else [])]


def _relations(findings: TheoryFindings) -> list[str]:
    sentences = [relation_sentence(relation) for relation in findings.relations]
    if (expected := findings.expectation) is not None:
        sentences[-1] += f" The theory expects {expected} where max κ is {findings.max_kurtosis:.2f}."
    return sentences


def relation_sentence(relation: Relation) -> str:
    """`r(κ_eff, D) = −0.21 [−0.52, 0.14], permutation p = 0.25, 32 languages: …`"""
    r, name = relation.r, f"r({relation.symbol}, D)"
    if r is None:
        return f"{name} is undefined: {relation.undefined}."
    return f"{name} = {_signed(r)}, permutation p {p_words(relation.permutation_p)}, {_count(relation)}: {_judgement(relation, r)}."


def _count(relation: Relation) -> str:
    count, independent = relation.languages, relation.independent
    if independent is None or independent >= count:
        return f"{count} languages"
    return f"{count} languages that count as {independent:.1f} independent ones"


def _judgement(relation: Relation, r: Estimate) -> str:
    if relation.significant:
        return (
            "languages with less lose more, as the theory says"
            if r.value < 0
            else "the opposite of what the theory says"
        )
    power = f"power {relation.power:.2f} to find r = {_number(CLAIMED)}"
    if not relation.powerful:
        return f"undecided ({power}, 0.80 for |r| = {relation.detectable:.2f})"
    weaker = ", which is outside the interval" if r.low > CLAIMED else ""
    return f"no correlation shown ({power}{weaker})"


def _contrast(contrast: Contrast) -> str:
    left, right = len(contrast.left_languages), len(contrast.right_languages)
    sentence = (
        f"{contrast.left.capitalize()} ({left} languages) against {contrast.right} ({right}): mean D {percent(contrast.left_mean)} and "
        f"{percent(contrast.right_mean)}, Hedges' g {_signed(contrast.g)}, Cliff's δ {_signed(contrast.delta)}, "
        f"permutation p {p_words(contrast.p)}"
    )
    if contrast.p < 0.05:
        return f"{sentence}."
    return f"{sentence}; these numbers of languages find a g of {contrast.detectable:.1f} with a power of 0.80."


def _families(families: Families) -> str:
    return (
        f"Language families ({len(families.languages)}): {_percent_interval(families.share)} of the variance of D lies between them, "
        f"p {p_words(families.p)}."
    )


def _percent_interval(share: Estimate) -> str:
    return f"{100 * share.value:.0f} % [{100 * share.low:.0f}, {100 * share.high:.0f}]"


def p_words(p: float | None) -> str:
    if p is None:
        return "–"
    return "below 0.001" if p < 0.001 else f"= {p:.3f}"


def _signed(estimate: Estimate) -> str:
    return f"{_number(estimate.value)} [{_number(estimate.low)}, {_number(estimate.high)}]"


def _number(value: float) -> str:
    return f"{value:z.2f}".replace("-", "−")


def relation_cells(findings: TheoryFindings) -> list[str]:
    """r(R̂, D), r(κ_eff, D) with interval and p, g of exposure and of scripts; a dash where there is none."""
    cells = []
    for relation in findings.relations:
        cells += [
            "–" if relation.r is None else _signed(relation.r),
            p_words(relation.permutation_p).removeprefix("= "),
        ]
    by_left = {contrast.left: contrast for contrast in findings.contrasts}
    return cells + [_signed(by_left[name].g) if name in by_left else "–" for name in ("low exposure", "other scripts")]


def caption(relation: Relation) -> str:
    return f"{figure_title(relation)} with 95 % intervals, one dot per language. {relation_sentence(relation)}"


def figure_title(relation: Relation) -> str:
    name = AXES[relation.quantity]
    return f"{name[0].upper()}{name[1:]} on the calibration text against degradation D"


@styled
def relation_figure(quantity: Quantity, profile: Profile, evaluation: Evaluation) -> Figure:
    """R̂(λ) or κ_eff(λ) against D(λ)."""
    figure, axes = new_figure(4.5)
    by_code = {r.language: r for r in profile.languages}
    for result in evaluation.judged:
        if result.language in by_code and (loss := result.degradation) is not None:
            x, y = getattr(by_code[result.language], quantity), 100 * loss.value
            bars = [[max(0.0, y - 100 * loss.low)], [max(0.0, 100 * loss.high - y)]]
            axes.errorbar(x, y, yerr=bars, fmt="o", color=BLUE, alpha=0.6, markersize=4)
            axes.annotate(result.language, (x, y), fontsize=7, xytext=(3, 3), textcoords="offset points")
    axes.set(xlabel=AXES[quantity], ylabel="degradation D, %")
    return figure
