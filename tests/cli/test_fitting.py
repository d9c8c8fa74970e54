import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from laaciq.cli.fitting import Column, fit

words = st.text(st.characters(codec="ascii", categories=["Ll"]), max_size=12)
columns = st.lists(
    st.builds(
        lambda heading, cell, importance, short: Column(
            heading, [cell], importance, short=(heading[:3], [cell[:3]]) if short else None
        ),
        words,
        words,
        st.none() | st.integers(0, 5),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


def width(fitted, gap=2):
    return sum(column.width + gap for column in fitted) - gap


@given(columns, st.integers(0, 120))
def test_columns_fit_or_nothing_more_can_go(columns, available):
    fitted = fit(columns, available)
    assert width(fitted) <= available or not any(column.reducible for column in fitted)


@given(columns, st.integers(0, 120))
def test_columns_that_must_stay_do(columns, available):
    must_stay = sum(column.importance is None for column in columns)
    assert sum(column.importance is None for column in fit(columns, available)) == must_stay


@given(columns)
def test_what_fits_is_unchanged(columns):
    assert fit(columns, width(columns)) == columns


def test_the_least_important_is_shortened_and_then_goes():
    name = Column("language", ["swa Swahili"], short=("", ["swa"]))
    loss = Column("D", ["10.0 %"])
    interval = Column("95 %", ["9.0 to 11.0"], importance=1, short=("", [""]))
    bar = Column("", ["█" * 10], importance=0)
    fitted = {
        available: [c.heading for c in fit([name, loss, interval, bar], available)] for available in (44, 35, 30, 12)
    }
    assert fitted == {
        44: ["language", "D", "95 %", ""],
        35: ["language", "D", "95 %"],
        30: ["language", "D", ""],
        12: ["", "D"],
    }


@pytest.mark.parametrize("cell", ["日本語", Text("日本語", style="red")])
def test_wide_characters_count_twice(cell):
    assert Column("", [cell]).width == 6
