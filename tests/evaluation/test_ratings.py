"""Preferences of people, from blinded pairs."""

import pytest
from scipy import stats

from laaciq.evaluation.continuations import Continuations, ContinuedPrompt
from laaciq.evaluation.ratings import KeyEntry, RatingKey, blind_pairs, preferences


def continued(code, count, identical=0):
    pairs = [
        ContinuedPrompt(prompt=f"p{n}", original=f"o{n}", quantized=f"o{n}" if n < identical else f"q{n}")
        for n in range(count)
    ]
    return Continuations(language=code, script="Latin", prompts=pairs)


def key_of(**sides):
    pairs = [
        KeyEntry(item=f"{code}-{n}", language=code, original=s)
        for code, row in sides.items()
        for n, s in enumerate(row)
    ]
    return RatingKey(original="o", quantized="q", identical=dict.fromkeys(sides, 0), pairs=pairs)


def test_sides_are_random_by_seed_and_the_sheet_does_not_tell():
    made = blind_pairs([continued("eng", 60, identical=10), continued("swa", 5)], pairs=40, seed=0)
    assert [pair.language for pair, _ in made].count("eng") == 40 and len(made) == 45
    for pair, side in made:
        number = pair.prompt[1:]
        shown = {"A": pair.A, "B": pair.B}
        assert shown.pop(side) == f"o{number}" and list(shown.values()) == [f"q{number}"]
        assert set(pair.model_dump()) == {"item", "language", "prompt", "A", "B"}
    # 45 tosses of a coin: four standard deviations.
    assert 9 <= sum(side == "A" for _, side in made) <= 36
    assert made == blind_pairs([continued("eng", 60, identical=10), continued("swa", 5)], pairs=40, seed=0)
    assert made != blind_pairs([continued("eng", 60, identical=10), continued("swa", 5)], pairs=40, seed=1)


def test_preferences_are_counted_through_the_key():
    key = key_of(swa="AABBABAB", eng="AB")
    original = {entry.item: entry.original for entry in key.pairs}
    answers = original | {"swa-0": "tie", "swa-1": "B", "eng-0": "tie"}
    result = preferences(key, [answers])
    swahili, english = result.languages
    assert (swahili.language, swahili.pairs, swahili.raters) == ("swa", 8, 1)
    assert (swahili.original.value, swahili.quantized.value, swahili.tie.value) == (0.75, 0.125, 0.125)
    assert swahili.net.value == pytest.approx(0.625) and swahili.net.low < 0.625 < swahili.net.high
    # The sign test: 6 against 1; mid-p counts the observed outcome by half.
    assert swahili.p == pytest.approx(stats.binomtest(6, 7).pvalue - stats.binom.pmf(1, 7, 0.5))
    assert result.overall.pairs == 10 and result.overall.original.value == 0.7
    assert swahili.p_corrected == pytest.approx(2 * swahili.p) and english.p > 0.4


def test_a_pair_counts_once_by_the_majority_of_its_raters():
    key = key_of(swa="AAA")
    chosen = (("A", "A", "B"), ("A", "B", "B"), ("B", "tie", "B"))
    result = preferences(key, [dict(zip(("swa-0", "swa-1", "swa-2"), row, strict=True)) for row in chosen])
    (swahili,) = result.languages
    assert (swahili.pairs, swahili.raters) == (3, 3)
    # A A B is the original's; A B tie is a tie; B B B is the quantized model's.
    assert (swahili.original.value, swahili.tie.value, swahili.quantized.value) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
