import time

import pytest

from laaciq.errors import BadOption
from tests.fuzz import harness
from tests.fuzz.harness import fuzz, run_case
from tests.fuzz.inputs import make_inputs
from tests.fuzz.mutations import Mutation
from tests.fuzz.targets import SLOW_TARGETS, TARGETS, Target, target_of

CASES = 300


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return make_inputs(tmp_path_factory.mktemp("fuzz"))


def test_inputs_are_valid_before_they_are_damaged(inputs, tmp_path):
    """Else every case would be refused."""
    for number, (source, use) in enumerate(
        dict.fromkeys((target.source, target.use) for target in (*TARGETS, *SLOW_TARGETS))
    ):
        (tmp_path / str(number)).mkdir()
        use(inputs.copy(source, tmp_path / str(number)), inputs)


def test_damaged_inputs_have_a_result_or_one_of_our_errors(inputs):
    counts = fuzz(CASES, seed=0, inputs=inputs)
    assert counts.failures == []
    assert counts.of("refused") > CASES / 2
    assert {name for name, _ in counts.outcomes} == {target.name for target in (*TARGETS, *SLOW_TARGETS)}


def raise_error(error):
    def use(path, inputs):
        raise error

    return use


@pytest.mark.parametrize(
    ("use", "wrong", "outcome"),
    [
        (lambda path, inputs: None, False, "accepted"),
        (lambda path, inputs: None, True, "wrong, accepted"),
        (raise_error(BadOption("no")), True, "refused"),
        (raise_error(KeyError("no")), True, "traceback"),
        (lambda path, inputs: time.sleep(20), False, "hang"),
    ],
)
def test_outcomes(inputs, monkeypatch, use, wrong, outcome):
    monkeypatch.setattr(harness, "SECONDS", 1)
    target = Target("sample", "plan.json", "", (lambda path, random: Mutation("none", wrong=wrong),), use)
    assert run_case(target, inputs, harness.Random(0))[1] == outcome


def test_the_same_seed_makes_the_same_cases(inputs):
    names = [[run_case(target_of(n), inputs, harness.Random(f"0:{n}"))[0] for n in range(1, 10)] for _ in range(2)]
    assert names[0] == names[1]
