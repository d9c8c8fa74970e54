"""The form in which a rater chooses between continuations: one HTML file that works offline, and saves its answers as CSV."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from laaciq.engine.escaping import html_text
from laaciq.evaluation.ratings import BlindPair

COLUMNS = ("item", "choice")
_CHOICES = (("A", "A is better"), ("B", "B is better"), ("tie", "No difference"))
# Answers stay in the browser until they are saved. Nothing is sent.
_SCRIPT = """
const form = document.querySelector("form"), place = "laaciq-ratings-" + form.dataset.sheet;
const answers = () => Object.fromEntries(new FormData(form));
function count() {
  const given = Object.keys(answers()).length, all = form.querySelectorAll("fieldset").length;
  document.querySelector("output").textContent = given + " of " + all + " answered";
}
try {
  for (const [item, choice] of Object.entries(JSON.parse(localStorage.getItem(place) || "{}")))
    for (const box of form.querySelectorAll("input"))
      if (box.name === item && box.value === choice) box.checked = true;
} catch (error) { /* this browser keeps nothing: answers last as long as the page */ }
form.addEventListener("change", () => {
  try { localStorage.setItem(place, JSON.stringify(answers())); } catch (error) { /* as above */ }
  count();
});
document.querySelector("button").addEventListener("click", () => {
  const given = answers(), rows = ["item,choice"];
  for (const box of form.querySelectorAll("fieldset")) rows.push(box.id + "," + (given[box.id] || ""));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([rows.join("\\r\\n") + "\\r\\n"], {type: "text/csv"}));
  link.download = form.dataset.sheet + "-answers.csv";
  link.click();
});
count();
"""
_STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; padding: 1rem; max-width: 60rem; font: 1rem/1.5 system-ui, sans-serif; }
fieldset { margin: 1.5rem 0; } .prompt { font-style: italic; } .sides { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; }
.sides h2 { font-size: 1rem; margin: 0; } .sides div { border: 1px solid; padding: 0.5rem; overflow-wrap: anywhere; }
label { margin-inline-end: 1.5rem; } footer { position: sticky; bottom: 0; padding: 0.75rem; background: Canvas; }
"""


def rating_form(name: str, code: str, pairs: Sequence[BlindPair]) -> str:
    """The form of one language, given its name and code."""
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    # A browser keeps the answers to every sheet apart.
    shown = "".join(pair.model_dump_json() for pair in pairs)
    sheet = f"{code}-{hashlib.sha256(shown.encode()).hexdigest()[:8]}"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Which continuation is better? {html_text(name)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>Which continuation is better? {html_text(name)}</h1>
<p>Two systems continued the same beginning of a text; both stop in the middle of a sentence. Choose the continuation that a reader of
{html_text(name)} would rather have: correct, fluent, on the subject, without loops or words of other languages. Which system is A
changes from pair to pair. At the end, save your answers and send back the file.</p>
<form data-sheet="{html_text(sheet)}">
{"".join(map(_pair, pairs))}
</form>
<footer><output></output> <button type="button">Save answers as CSV</button></footer>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _pair(pair: BlindPair) -> str:
    item = html_text(pair.item)
    boxes = "".join(
        f'<label><input type="radio" name="{item}" value="{value}"> {label}</label>' for value, label in _CHOICES
    )
    sides = "".join(
        f"<div><h2>{side}</h2>{_text(text, pair.language)}</div>" for side, text in (("A", pair.A), ("B", pair.B))
    )
    prompt = _text(pair.prompt, pair.language, "prompt")
    return f'<fieldset id="{item}"><legend>{item}</legend>{prompt}<div class="sides">{sides}</div>{boxes}</fieldset>\n'


def _text(text: str, language: str, kind: str = "text") -> str:
    lines = "<br>".join(map(html_text, text.split("\n")))
    return f'<p class="{kind}" lang="{language}" dir="auto">{lines}</p>'
