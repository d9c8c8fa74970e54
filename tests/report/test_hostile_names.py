"""Reports of an evaluation in which every name is hostile have the structure of any other, load nothing and run nothing."""

from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt

from laaciq.engine.escaping import printable
from laaciq.evaluation import Evaluation
from laaciq.quantization.plan import PlanSet
from laaciq.report.findings import Findings
from laaciq.report.html import html_report
from laaciq.report.markdown import markdown_report
from tests.engine.test_escaping import kinds
from tests.payloads import PAYLOADS, assert_inert
from tests.report.test_report import COMMAND, PLAN, Reader, evaluation, markdown, read

ALL = " ".join(PAYLOADS.values())
MARKDOWN = MarkdownIt("commonmark").enable("table")


def hostile(name: str) -> Evaluation:
    usual = evaluation("rankings disagree")
    languages = [r.model_copy(update={"name": f"{name}{r.language}", "script": name}) for r in usual.languages]
    texts = dict.fromkeys(("original", "quantized", "texts", "verdict"), name)
    return usual.model_copy(update={**texts, "languages": languages})


def plans(name: str) -> PlanSet:
    return PlanSet(plans={"": PLAN.model_copy(update={"method": name, "weights": {name: 1.0}, "tables": [[name]]})})


def test_the_page_has_no_other_elements_and_shows_the_names() -> None:
    source = html_report(Findings(hostile(ALL), COMMAND, plans=plans(ALL), baseline=hostile(ALL)))
    page = Reader(source)
    assert_inert(source)
    assert set(page.tags) == set(read("rankings disagree").tags)
    assert all(link.startswith("#") for link in page.links)
    assert page.text.count(printable(ALL)) > 20
    assert not re.search(r"<[^>]*\son\w+\s*=", source)


def test_the_page_forbids_scripts_and_loads_by_itself() -> None:
    source = html_report(Findings(evaluation("none"), COMMAND))
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', source)
    assert policy and policy.start() < source.index("<title>")
    rules = dict(rule.split(maxsplit=1) for rule in policy[1].split("; "))
    assert rules["default-src"] == "'none'"
    # Styles, and nothing else, may stand in the page; pictures only as data in it.
    assert (rules.pop("style-src"), rules.pop("img-src")) == ("'unsafe-inline'", "data:")
    assert set(rules.values()) == {"'none'"}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_the_markdown_has_no_other_markup(payload: str) -> None:
    command = f"laaciq run {payload}"
    source = markdown_report(Findings(hostile(payload), command, plans=plans(payload), baseline=hostile(payload)))
    usual = evaluation("rankings disagree")
    plain = markdown_report(Findings(usual, COMMAND, plans=plans("rtn"), baseline=usual))
    assert_inert(source)
    assert [token.type for token in MARKDOWN.parse(source)] == [token.type for token in MARKDOWN.parse(plain)]
    assert kinds(MARKDOWN.parse(source)) - kinds(MARKDOWN.parse(plain)) <= {"text_special"}
    assert markdown("none").count("<") == source.count("<") - source.count("\\<") - _in_code(source).count("<")


def _in_code(source: str) -> str:
    tokens = [token for top in MARKDOWN.parse(source) for token in [top, *(top.children or [])]]
    return "".join(token.content for token in tokens if token.type in ("code_inline", "fence"))
