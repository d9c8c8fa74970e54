"""The report on a profile: what is in the weights, how languages use them, what the theory predicts."""

from __future__ import annotations

from laaciq.engine.store import Store
from laaciq.planning.screening import Screening
from laaciq.profiling.results import Profile
from laaciq.profiling.routing import language_routings
from laaciq.report.figures import render
from laaciq.report.page import drawing, heading, page, paragraph, table
from laaciq.report.profile_plots import CAPTIONS, profile_figures


def write_profile_report(profile: Profile, screening: Screening, store: Store) -> None:
    """`report.html`, and every plot as PNG and SVG in `plots/`."""
    figures = profile_figures(profile)
    for name, figure in figures.items():
        for kind in ("png", "svg"):
            store.write(f"plots/{name}.{kind}", render(figure, kind))
    drawings = [drawing(figure, CAPTIONS[name]) for name, figure in figures.items()]
    store.write("report.html", profile_html(profile, screening, drawings))


def profile_html(profile: Profile, screening: Screening, drawings: list[str]) -> str:
    facts = profile.architecture
    title = f"Profile of {profile.model}"
    shape = (
        f"{facts.model_type}, {facts.parameters / 1e6:.1f} M parameters, {facts.blocks} blocks of width {facts.width}"
    )
    return page(
        title,
        [
            heading(title, 1),
            paragraph(f"{shape}; texts: {profile.texts}."),
            heading(f"Screening: {screening.risk}"),
            paragraph(screening.prediction),
            paragraph(f"Recommended: {screening.strategy}."),
            _conditions(screening),
            heading("By block and language"),
            *drawings,
            heading("By language"),
            _languages(profile),
            *_routing(profile),
        ],
    )


def _conditions(screening: Screening) -> str:
    answers = {True: "yes", False: "no", None: "unknown"}
    rows = [(f"{c.name}. {c.question}", answers[c.answer], c.measured, c.threshold) for c in screening.conditions]
    boxes = [(box.question, "done" if box.done else "open", box.answer, "") for box in screening.checklist]
    headings = ("condition or check", "answer", "measured", "threshold")
    return table(headings, rows + boxes, label="Conditions and checklist", text_columns=4)


def _routing(profile: Profile) -> list[str]:
    rows = [
        (r.language, f"{100 * r.distance:.1f} %", f"{100 * r.idle:.1f} %", r.most_used)
        for r in language_routings(profile)
    ]
    if not rows:
        return []
    headings = ("language", "tokens routed unlike the mean", "experts without a token", "most different expert")
    return [heading("Experts by language"), table(headings, rows, label="Experts by language", text_columns=1)]


def _languages(profile: Profile) -> str:
    tokens = {t.language: t for t in profile.tokenization}
    aligned = {a.language: a for a in profile.alignment}
    rows = [
        (
            r.language,
            "–" if r.bits_per_byte is None else f"{r.bits_per_byte:.2f}",
            f"{100 * r.outlier_fraction:.2f} %",
            f"{r.effective_kurtosis:.3f}",
            f"{tokens[r.language].tokens_per_byte:.3f}",
            f"{max(aligned[r.language].retrieval):.2f}" if r.language in aligned else "–",
            "–" if r.exposure_tokens is None else f"{r.exposure_tokens:,}",
        )
        for r in profile.languages
    ]
    headings = ("language", "bits/byte", "R̂", "κ_eff", "tokens/byte", "best retrieval", "training tokens")
    return table(headings, rows, label="By language")
