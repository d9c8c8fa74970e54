"""The report as one HTML file that needs nothing else: styles, figures and plotly.js are inside."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from string import Template

import plotly.graph_objects as go
from matplotlib.figure import Figure

from laaciq.evaluation.results import Evaluation, LanguageResult
from laaciq.planning.results import Planning
from laaciq.profiling.results import Profile
from laaciq.quantization.plan import PlanSet
from laaciq.report import wording
from laaciq.report.plan_plots import agreement_figure, front_figure
from laaciq.report.plots import companions_figure, degradation_figure
from laaciq.report.profile_plots import figures_of, inline_svg

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --muted: #59636e; --paper: #ffffff; --rule: #d8dee4; --bar: #cfe3f3; --bad: #f6d5c3; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8ea; --muted: #a2abb5; --paper: #14171a; --rule: #363d44; --bar: #1f4560; --bad: #6b2f10; }
}
body { margin: 0 auto; padding: 1rem; max-width: 72rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.verdict { font-size: 1.15rem; font-weight: 600; } p, dd { max-width: 48rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.25rem 1rem; }
dt { color: var(--muted); } dd { margin: 0; overflow-wrap: anywhere; }
figure { margin: 1rem 0; } figcaption, caption { color: var(--muted); font-size: 0.9rem; text-align: start; }
.drawing { overflow-x: auto; } .drawing svg { background: white; max-width: 100%; height: auto; }
.scroll { overflow-x: auto; } pre { overflow-x: auto; padding: 0.75rem; border: 1px solid var(--rule); }
table { border-collapse: collapse; font-size: 0.9rem; } caption { padding-bottom: 0.5rem; }
th, td { padding: 0.25rem 0.6rem; text-align: start; border-bottom: 1px solid var(--rule); }
thead th { vertical-align: bottom; } tbody th { position: sticky; inset-inline-start: 0; background: var(--paper); font-weight: 600; }
tbody th, td { white-space: nowrap; } .number { text-align: end; font-variant-numeric: tabular-nums; }
.bar { background: linear-gradient(var(--bar), var(--bar)) no-repeat left / var(--share) 70%; }
.collapsed .bar { background-image: linear-gradient(var(--bad), var(--bad)); } .not-served { color: var(--muted); }
/* Plotly writes its colours into each element. */
.xtick text, .ytick text, .y2tick text, .xtitle, .legendtext, .annotation-text { fill: var(--ink) !important; }
@media (max-width: 40rem) { dl { display: block; } dd { margin-bottom: 0.5rem; } tbody th { white-space: normal; max-width: 7rem; } }
"""

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>$style</style>
</head>
<body>
<main>
<h1>$heading</h1>
<p class="verdict">$verdict</p>
$usual
<h2>What was compared</h2>
$facts
<h2>By language</h2>
$degradation
$table
<h2>Disparity</h2>
<p>$disparity</p>
$disagreement
$companions
$planning
$explanation
<h2>Definitions</h2>
$definitions
<h2>Reproduce</h2>
<pre><code>$command</code></pre>
</main>
</body>
</html>
""")


def html_report(
    evaluation: Evaluation,
    plans: PlanSet | None,
    *,
    command: str,
    profile: Profile | None = None,
    baseline: Evaluation | None = None,
    planning: Planning | None = None,
) -> str:
    """What quantization cost each language, as one HTML file. `command` is what reproduces the evaluation.

    With the model's `profile` the report also sets what the theory explains it by beside it; with a `baseline` what today's default costs;
    with the `planning` how the plan was found.
    """
    disagreement = wording.disagreement(evaluation)
    degradation, companions = _figures(evaluation, baseline)
    return _PAGE.substitute(
        title=escape(f"{wording.TITLE}: {evaluation.quantized}"),
        style=_STYLE,
        heading=escape(wording.TITLE),
        verdict=escape(evaluation.verdict),
        usual="" if baseline is None else f"<p>{escape(wording.usual_sentence(evaluation, baseline))}</p>",
        facts=_facts(evaluation, plans),
        degradation=degradation,
        table=_table(evaluation, baseline),
        disparity=escape(" ".join(wording.disparity_sentences(evaluation))),
        disagreement=f"<p>{escape(disagreement)}</p>" if disagreement else "",
        companions=companions,
        planning="" if planning is None else _planning(planning),
        explanation="" if profile is None else _explanation(profile, evaluation),
        definitions=_description_list((escape(term), escape(text)) for term, text in wording.definitions(evaluation)),
        command=escape(command),
    )


def _figures(evaluation: Evaluation, baseline: Evaluation | None) -> tuple[str, str]:
    """Both figures, or nothing in the place of one that has nothing to show. The first brings plotly.js along."""
    if all(not result.served for result in evaluation.languages):
        return "", ""
    band = "Differences within the grey band, as wide as the noise floor and centred on the common mean, are noise. "
    hollow = f"Hollow dots are {wording.USUAL.lower()}. "
    degradation = _figure(
        degradation_figure(evaluation, baseline),
        name="degradation",
        caption="Degradation D by language with 95 % intervals, worst on top. "
        f"{band if evaluation.disparity else ''}{hollow if baseline else ''}The table below holds the same numbers.",
        first=True,
    )
    if len(evaluation.judged) < 2:
        return degradation, ""
    companions = _figure(
        companions_figure(evaluation),
        name="companions",
        caption="Rank of each language under each measure; the first pays most. Lines that cross show where the measures "
        "disagree; coloured ones move by at least a quarter of the ranks.",
        first=False,
    )
    return degradation, companions


def _planning(planning: Planning) -> str:
    """How the plan was found: in words, predicted against measured losses, and what other sizes would cost."""
    said = escape(" ".join(wording.planning_sentences(planning)))
    figures = [
        _figure(
            agreement_figure(planning),
            name="agreement",
            caption="Predicted against measured loss, a dot a language and plan; on the line they agree.",
            first=False,
        )
    ]
    if planning.front:
        figures.append(
            _figure(
                front_figure(planning),
                name="front",
                caption="What plans of other sizes are predicted to cost: the worst-off language, and the disparity.",
                first=False,
            )
        )
    return "\n".join(["<h2>The plan</h2>", f"<p>{said}</p>", *figures])


def _explanation(profile: Profile, evaluation: Evaluation) -> str:
    """The plots of the profile, with the theory's own correlation first."""
    figures = figures_of(profile, evaluation)
    first = figures.pop("kurtosis-degradation")
    drawn = "\n".join(_drawing(figure) for figure in (first, *figures.values()))
    return f"<h2>Weights and activations</h2>\n<p>{escape(wording.EXPLANATION)}</p>\n{drawn}"


def _drawing(figure: Figure) -> str:
    label = escape(figure.axes[0].get_title())
    return f'<figure class="drawing" role="img" aria-label="{label}">{inline_svg(figure)}</figure>'


def _figure(figure: go.Figure, *, name: str, caption: str, first: bool) -> str:
    # A fixed id keeps the file the same from run to run.
    drawing = figure.to_html(
        full_html=False, include_plotlyjs=first, div_id=f"{name}-figure", config={"displayModeBar": False}
    )
    label = escape(caption)
    return (
        f'<figure>\n<div role="img" aria-label="{label}">{drawing}</div>\n<figcaption>{label}</figcaption>\n</figure>'
    )


def _facts(evaluation: Evaluation, plans: PlanSet | None) -> str:
    def shown(fact: wording.Fact) -> str:
        return f"<code><bdi>{escape(fact.value)}</bdi></code>" if fact.verbatim else escape(fact.value)

    return _description_list((escape(fact.label), shown(fact)) for fact in wording.facts(evaluation, plans))


def _description_list(pairs: Iterable[tuple[str, str]]) -> str:
    return "<dl>\n" + "\n".join(f"<dt>{term}</dt><dd>{text}</dd>" for term, text in pairs) + "\n</dl>"


def _table(evaluation: Evaluation, baseline: Evaluation | None) -> str:
    columns = wording.columns(evaluation, baseline)
    heads = "".join(f'<th scope="col"{_kind(column)}>{escape(column.heading)}</th>' for column in columns)
    scales = {c.measure: _largest(evaluation, c.measure) for c in columns if c.measure}
    rows = "\n".join(_row(result, columns, scales) for result in evaluation.worst_first)
    # A part that scrolls must be reachable by keyboard.
    return (
        '<div class="scroll" role="region" aria-label="Table by language" tabindex="0">\n<table>\n'
        f"<caption>{escape(wording.table_caption(evaluation))}</caption>\n"
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n</div>"
    )


def _row(result: LanguageResult, columns: list[wording.Column], scales: dict[str, float]) -> str:
    state = "not-served" if not result.served else "collapsed" if result.collapsed else "judged"
    first, *others = columns
    cells = [f'<th scope="row"><bdi>{escape(first.cell(result))}</bdi></th>']
    for column in others:
        attributes = _kind(column) if column.measure is None else _bar(result, column.measure, scales[column.measure])
        cells.append(f"<td{attributes}>{escape(column.cell(result))}</td>")
    return f'<tr class="{state}">{"".join(cells)}</tr>'


def _kind(column: wording.Column) -> str:
    return ' class="number"' if column.numeric else ""


def _bar(result: LanguageResult, measure: str, largest: float) -> str:
    """A bar behind the number, as long as its share of the largest; a collapsed language fills the cell of D."""
    estimate = getattr(result, measure)
    if not result.served or (result.collapsed and measure != "degradation") or largest <= 0:
        return ' class="number"'
    share = 1.0 if estimate is None else min(1.0, max(0.0, estimate.value / largest))
    return f' class="number bar" style="--share: {100 * share:.1f}%"'


def _largest(evaluation: Evaluation, measure: str) -> float:
    return max((getattr(result, measure).value for result in evaluation.judged), default=1.0)
