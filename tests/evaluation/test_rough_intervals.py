"""With few documents intervals are rough, and whatever shows them says so."""

import pytest

import laaciq
from laaciq.cli.compare import compare_table
from laaciq.cli.tables import evaluation_table
from laaciq.corpus import Passages, Texts, language
from laaciq.engine.progress import Progress
from laaciq.evaluation.verdict import rough_intervals
from laaciq.report.compare_report import cells, compare_html
from laaciq.report.wording import table_caption
from laaciq.stats.estimate import Estimate
from laaciq.studies.comparison import Comparison, Made, Row
from laaciq.studies.texts import require_documents
from tests.cli.rendering import rendered
from tests.cli.results import evaluation

SENTENCE = "Intervals are rough: a language has 8 documents, and 10 or more are needed."
LOSSES = {"eng": 0.02, "swa": 0.04}


@pytest.mark.parametrize("documents, said", [(8, SENTENCE), (10, None), (0, None)])
def test_the_sentence(documents, said):
    assert rough_intervals(documents) == said


def comparison(documents):
    made = Made(by="a", settings="b", block_bits_per_weight=4, model_bits_per_weight=5, layers=1, seconds=1)
    row = Row(method="gptq", bits=4, reads_text=True, made=made, evaluation=evaluation(LOSSES, documents=documents))
    return Comparison(
        model="m",
        texts="t",
        bits=4,
        calibration="all",
        passages=8,
        languages=list(LOSSES),
        rows=[row],
        theory={},
        command="c",
    )


@pytest.mark.parametrize("documents", [8, 12])
def test_what_shows_intervals_says_it(documents, tmp_path):
    measured, compared = evaluation(LOSSES, documents=documents), comparison(documents)
    file = tmp_path / "evaluation.json"
    file.write_text(measured.model_dump_json())
    shown = {
        "table": " ".join(rendered(evaluation_table(measured), 200)),
        "reports and card": table_caption(measured),
        "check": str(laaciq.check(file, max_degradation=0.1).limits[0]),
        "check of disparity": str(laaciq.check(file, max_disparity=0.1).limits[0]),
        "comparison": " ".join(rendered(compare_table(compared), 200)),
        "report of a comparison": compare_html(compared),
    }
    assert [name for name, text in shown.items() if (SENTENCE in text) != (documents == 8)] == []


def test_the_interval_beside_the_worst_language_is_that_of_a_maximum():
    compared = comparison(12)
    largest = Estimate(value=0.04, low=0.011, high=0.077)
    row = compared.rows[0]
    evaluated = row.evaluation.model_copy(
        update={"disparity": row.evaluation.disparity.model_copy(update={"worst": largest})}
    )
    assert "1.1 to 7.7" in cells(row.model_copy(update={"evaluation": evaluated}))


class Said(Progress):
    def __init__(self):
        self.sentences = []

    def say(self, text):
        self.sentences.append(text)


@pytest.mark.parametrize("documents, said", [(8, [SENTENCE]), (10, [])])
def test_studies_say_it_before_they_begin(documents, said):
    names = tuple(f"d{place}" for place in range(documents))
    passages = Passages(language("eng"), texts=names, documents=names)
    progress = Said()
    require_documents(Texts(name="t", by_language={"eng": passages}, parallel=True), "test", progress)
    assert progress.sentences == said
