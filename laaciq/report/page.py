"""The frame of every HTML report: one file with its styles and figures inside, legible on paper, phones, and dark screens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from matplotlib.figure import Figure

from laaciq.engine.escaping import html_text
from laaciq.report.figures import inline_svg

# The page loads nothing and runs nothing. Styles and the pixels of heat maps stand in it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --muted: #59636e; --paper: #ffffff; --rule: #d8dee4; --bar: #cfe3f3; --bad: #f6d5c3; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8ea; --muted: #a2abb5; --paper: #14171a; --rule: #363d44; --bar: #1f4560; --bad: #6b2f10; }
}
body { margin: 0 auto; padding: 1rem; max-width: 72rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.verdict { font-size: 1.15rem; font-weight: 600; } p, dd, li { max-width: 48rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.25rem 1rem; }
dt { color: var(--muted); } dd { margin: 0; overflow-wrap: anywhere; }
figure { margin: 1rem 0; } figcaption, caption { color: var(--muted); font-size: 0.9rem; text-align: start; }
figure svg { max-width: 100%; min-width: 36rem; height: auto; } .scroll { overflow-x: auto; }
pre { overflow-x: auto; padding: 0.75rem; border: 1px solid var(--rule); } summary { cursor: pointer; }
table { border-collapse: collapse; font-size: 0.9rem; } caption { padding-bottom: 0.5rem; }
th, td { padding: 0.25rem 0.6rem; text-align: start; border-bottom: 1px solid var(--rule); }
thead th { vertical-align: bottom; } tbody th { position: sticky; inset-inline-start: 0; background: var(--paper); font-weight: 600; }
tbody th, td { white-space: nowrap; } .number { text-align: end; font-variant-numeric: tabular-nums; }
.bar { background: linear-gradient(var(--bar), var(--bar)) no-repeat left / var(--share) 70%; }
.collapsed .bar { background-image: linear-gradient(var(--bad), var(--bad)); } .not-served { color: var(--muted); }
@media (max-width: 40rem) { dl { display: block; } dd { margin-bottom: 0.5rem; } tbody th { white-space: normal; max-width: 7rem; } }
"""


def page(title: str, body: Iterable[str]) -> str:
    """`title` is plain text, the parts of `body` are HTML; empty ones are left out."""
    parts = "\n".join(part for part in body if part)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html_text(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
{parts}
</main>
</body>
</html>
"""


def heading(text: str, level: int = 2) -> str:
    return f"<h{level}>{html_text(text)}</h{level}>"


def paragraph(text: str) -> str:
    return f"<p>{html_text(text)}</p>" if text else ""


def verdict(text: str) -> str:
    return f'<p class="verdict">{html_text(text)}</p>'


def bullets(items: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{html_text(item)}</li>' for item in items)}</ul>"


def code(text: str) -> str:
    return f"<pre><code>{html_text(text)}</code></pre>"


def details(summary: str, body: str) -> str:
    """Folded away until the reader opens it."""
    return f"<details>\n<summary>{html_text(summary)}</summary>\n{body}\n</details>"


def drawing(figure: Figure, caption: str) -> str:
    label = html_text(caption)
    return (
        f'<figure>\n<div class="scroll" role="img" aria-label="{label}" tabindex="0">{inline_svg(figure, caption)}</div>\n'
        f"<figcaption>{label}</figcaption>\n</figure>"
    )


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, label: str, text_columns: int = 1) -> str:
    """Plain text in cells; the first `text_columns` stand to the left, numbers to the right."""
    kinds = ["" if place < text_columns else ' class="number"' for place in range(len(headings))]
    head = "".join(f'<th scope="col"{kind}>{html_text(name)}</th>' for name, kind in zip(headings, kinds, strict=True))
    lines = [
        f'<tr><th scope="row">{html_text(row[0])}</th>'
        + "".join(f"<td{kind}>{html_text(cell)}</td>" for cell, kind in zip(row[1:], kinds[1:], strict=True))
        + "</tr>"
        for row in rows
    ]
    return scrolling(
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{chr(10).join(lines)}\n</tbody>\n</table>", label
    )


def scrolling(content: str, label: str) -> str:
    """A part that scrolls must be reachable by keyboard."""
    return f'<div class="scroll" role="region" aria-label="{html_text(label)}" tabindex="0">\n{content}\n</div>'


def description_list(pairs: Iterable[tuple[str, str]]) -> str:
    """Of terms and texts in HTML."""
    return "<dl>\n" + "\n".join(f"<dt>{term}</dt><dd>{text}</dd>" for term, text in pairs) + "\n</dl>"
