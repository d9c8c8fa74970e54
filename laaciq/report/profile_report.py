"""The report on a profile: what is in the weights, how languages use them, what the theory predicts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from laaciq.engine.files import write_text
from laaciq.planning.screening import Screening
from laaciq.profiling.results import Profile
from laaciq.report.profile_plots import figures_of, inline_svg, write_figures

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.15rem 0.7rem; text-align: right; border-bottom: 1px solid color-mix(in srgb, currentColor 15%, transparent); }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1.5rem 0; overflow-x: auto; }
figure svg { background: white; max-width: 100%; height: auto; }
.wide { overflow-x: auto; }
"""


def write_profile_report(profile: Profile, screening: Screening, path: Path) -> None:
    """Beside the profile `NAME.json`: `NAME.html`, and every plot as PNG and SVG in `NAME-plots/`."""
    figures = figures_of(profile)
    write_figures(figures, path.with_name(f"{path.stem}-plots"))
    plots = {name: inline_svg(figure) for name, figure in figures.items()}
    write_text(path.with_suffix(".html"), profile_html(profile, screening, plots))


def profile_html(profile: Profile, screening: Screening, plots: dict[str, str]) -> str:
    facts = profile.architecture
    shape = (
        f"{facts.model_type}, {facts.parameters / 1e6:.1f} M parameters, {facts.blocks} blocks of width {facts.width}"
    )
    drawn = "".join(f"<figure>{plot}</figure>" for plot in plots.values())
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Profile of {escape(profile.model)}</title><style>{_STYLE}</style>"
        f"<h1>Profile of {escape(profile.model)}</h1><p>{escape(shape)}; texts: {escape(profile.texts)}.</p>"
        f"<h2>Screening: {screening.risk}</h2><p>{escape(screening.prediction)}</p><p>{escape(screening.strategy)}</p>"
        f"{_conditions(screening)}<h2>By block and language</h2>{drawn}{_languages(profile)}</html>"
    )


def _conditions(screening: Screening) -> str:
    answers = {True: "yes", False: "no", None: "unknown"}
    rows = [(f"{c.name}. {c.question}", answers[c.answer], c.measured, c.threshold) for c in screening.conditions]
    boxes = [(box.question, "done" if box.done else "open", box.answer, "") for box in screening.checklist]
    return _table(("condition or check", "", "measured", "threshold"), rows + boxes)


def _languages(profile: Profile) -> str:
    tokens = {t.language: t for t in profile.tokenization}
    aligned = {a.language: a for a in profile.alignment}
    rows = []
    for result in profile.languages:
        own = aligned.get(result.language)
        rows.append(
            (
                result.language,
                "–" if result.bits_per_byte is None else f"{result.bits_per_byte:.2f}",
                f"{100 * result.outlier_fraction:.2f} %",
                f"{result.effective_kurtosis:.3f}",
                f"{tokens[result.language].tokens_per_byte:.3f}",
                "–" if own is None else f"{max(own.retrieval):.2f}",
                "–" if result.exposure_tokens is None else f"{result.exposure_tokens:,}",
            )
        )
    headings = ("language", "bits/byte", "R̂", "κ_eff", "tokens/byte", "best retrieval", "exposure")
    return f"<h2>By language</h2>{_table(headings, rows)}"


def _table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
