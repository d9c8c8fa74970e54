import pytest

from laaciq.errors import BadOption
from laaciq.models import find_model, load
from laaciq.options import RunOptions, WeightOptions
from laaciq.planning.baseline import baseline_options, plain_grid
from laaciq.planning.budget import Budget, size_budget
from laaciq.planning.tensor_groups import base_plans
from laaciq.profiling.results import Architecture, ComponentWeights, LanguageActivations, Profile
from tests.tiny import save_tiny


@pytest.fixture(scope="module")
def anatomy(tmp_path_factory):
    return load(find_model(save_tiny("llama", tmp_path_factory.mktemp("model") / "llama"))).anatomy


def budget(anatomy, **options):
    chosen = WeightOptions(method="planned", **options)
    tensors = base_plans(anatomy, symmetric=False, token_matrices=chosen.budget_for == "model")
    return size_budget(anatomy, chosen, tensors)


def test_a_budget_is_named_as_it_was_given(anatomy):
    assert budget(anatomy, budget=2.2).given == "2.2 bits per weight"
    assert budget(anatomy, bits=2, group_size=128).given == "2 bits, group size 128,"


def test_a_budget_is_counted_over_the_blocks_or_over_the_whole_model(anatomy):
    blocks = sum(linear.shape[0] * linear.shape[1] for linear in anatomy.linears)
    everything = anatomy.parameter_count()
    assert budget(anatomy, budget=4.5).bits == int(4.5 * blocks)
    whole = budget(anatomy, budget=9.0, budget_for="model")
    # Norms stay in 16 bits, whatever the plan.
    planned = sum(linear.shape[0] * linear.shape[1] for linear in anatomy.linears) + 2 * 400 * 32
    assert whole.bits == int(9.0 * everything) - 16 * (everything - planned)
    assert whole.per_weight(whole.bits) == pytest.approx(9.0, abs=1 / everything)
    # Rows of 32 or 64 inputs: one group each.
    assert budget(anatomy, bits=4).bits == 4 * blocks + 16 * sum(linear.shape[0] for linear in anatomy.linears)


def test_a_budget_that_is_too_small_is_refused_in_bits_per_weight():
    with pytest.raises(BadOption) as error:
        Budget(bits=1000, weights=1000, fixed=0, given="1 bit per weight").require(2281)
    assert str(error.value) == (
        "1 bit per weight is too small: the smallest plan takes 2.281 bits per weight; give --budget 2.281 or more"
    )
    Budget(bits=2281, weights=1000, fixed=0, given="").require(2281)


@pytest.mark.parametrize("smallest", [2281, 2333, 9999])
def test_the_size_that_is_named_is_enough(smallest):
    """Of 3,000 weights, whose size in bits per weight has no end in decimals."""
    with pytest.raises(BadOption) as error:
        Budget(bits=100, weights=3000, fixed=500, given="").require(smallest)
    enough = float(str(error.value).rpartition("--budget ")[2].split()[0])
    assert int(enough * 3000) - 500 >= smallest


@pytest.mark.parametrize(
    ("size", "grid"),
    [(4.25, (4, 64)), (4.3, (4, 64)), (3.0, (2, 16)), (16.0, (8, 16)), (1.0, (2, 128)), (2.125, (2, 128))],
)
def test_the_largest_plain_grid_within_a_size(size, grid):
    assert plain_grid(size) == grid


def profile(bits_per_byte, *, blocks=1000, embeddings=1000):
    """As much of a profile as the baseline reads."""
    languages = [LanguageActivations.model_construct(language="eng", bits_per_byte=bits_per_byte)]
    components = [
        ComponentWeights(component=name, count=count, mean=0, sigma=1, kurtosis=0)
        for name, count in (("attention", blocks // 2), ("feed-forward", blocks // 2), ("embeddings", embeddings))
    ]
    architecture = Architecture.model_construct(parameters=blocks + embeddings)
    return Profile.model_construct(languages=languages + languages, components=components, architecture=architecture)


@pytest.mark.parametrize(
    ("options", "grid"),
    [
        ({}, (4, 64)),
        ({"bits": 3, "group_size": 32}, (3, 32)),
        ({"budget": 4.25}, (4, 64)),
        # Half of the weights are embeddings in 16 bits: 10.125 on average leaves 4.25 for the others.
        ({"budget": 10.125, "budget_for": "model"}, (4, 64)),
        ({"baseline": False}, None),
        ({"method": "gptq"}, None),
        ({"plan": "plan.json"}, None),
        ({"hold_out": ("English",)}, None),
        ({"served_bound": 1.0}, None),
    ],
)
def test_the_baseline_has_the_size_of_the_plan(options, grid):
    languages = profile(2.0)
    if options.get("served_bound"):
        served = LanguageActivations.model_construct(language="swa", bits_per_byte=0.5)
        languages = languages.model_copy(update={"languages": [*languages.languages, served]})
    result = baseline_options(RunOptions(**options), languages)
    assert (None if result is None else (result.bits, result.group_size)) == grid
    assert result is None or (result.method, result.calibration_languages) == ("gptq", ("eng",))
