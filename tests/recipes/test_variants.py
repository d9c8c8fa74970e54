import json
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from torch import nn

from laaciq import reference
from laaciq.commands.profile import known_exposure
from laaciq.models import find_model
from laaciq.studies.variants import Variants

ROOT = Path(__file__).parents[2]
RECIPE = """
[texts]
eng = 3000
swa = 1500
[model]
width = 32
blocks = 2
heads = 2
key_value_heads = 1
feed_forward = 64
attention = "softmax"
[training]
passes = 1.0
mix_exponent = 1.0
row_tokens = 64
rows_per_step = 8
learning_rate = 4e-3
weight_decay = 0.1
balance_penalty = 0.0
seed = 0
[variants.base]
[variants.softmax1]
model.attention = "softmax1"
[variants.wrong]
training.nonsense = 1
"""


@pytest.fixture
def recipes(monkeypatch):
    """The modules of `recipes`, which is no package."""
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    import attention
    import measure_variants
    import train_variants

    yield attention, train_variants, measure_variants
    for name in ("attention", "measure_variants", "train_variants", "train_reference", "reference_data"):
        sys.modules.pop(name, None)


def test_a_variant_is_trained_measured_and_read_back(recipes, tmp_path):
    _, train_variants, measure_variants = recipes
    recipe = tomllib.loads(RECIPE)
    prepared = tmp_path / "prepared"
    train_variants.prepare(ROOT / "laaciq/reference/texts/test", recipe, prepared)
    folder = tmp_path / "softmax1-2"
    train_variants.train_one(train_variants.variant_recipe(recipe, "softmax1", 2), prepared, folder, "cpu")
    # Without this entry, other programs would load it with the plain softmax in silence.
    assert json.loads((folder / "config.json").read_text())["attention_softmax"] == "softmax1"
    measure_variants.measure(folder, device="cpu", passages=3)
    measure_variants.gather([folder], tmp_path / "variants.json")
    (variant,) = Variants.read(tmp_path / "variants.json").of("softmax1")
    assert variant.seed == 2
    assert variant.options["attention"] == "softmax1"
    assert set(variant.exposure) == {"eng", "swa"}
    assert variant.exposure["eng"] > variant.exposure["swa"] > 0
    assert known_exposure(find_model(folder)) == variant.exposure
    assert len(variant.kurtosis) == 2
    assert all(value >= 0 for value in variant.imbalance.values())
    assert [losses.bits for losses in variant.losses] == [3, 4]


def test_the_figures_that_are_shipped_are_those_of_the_recipe(recipes):
    _, train_variants, _ = recipes
    recipe = tomllib.loads((ROOT / "recipes/variants.toml").read_text())
    shipped = Variants.read(reference.variants_path())
    names = train_variants.variant_names(recipe, None)
    assert {(variant.name, variant.seed) for variant in shipped.variants} == {(n, s) for n in names for s in range(3)}
    for variant in shipped.variants:
        wanted = train_variants.variant_recipe(recipe, variant.name, variant.seed)
        assert {**variant.options, "vocabulary": 0} == {**wanted["model"], **wanted["training"], "vocabulary": 0}
        assert variant.exposure.keys() == recipe["texts"].keys()


def test_a_variant_changes_only_what_it_names(recipes):
    _, train_variants, _ = recipes
    recipe = tomllib.loads((ROOT / "recipes/variants.toml").read_text())
    base = train_variants.variant_recipe(recipe, "base", 0)
    for name in train_variants.variant_names(recipe, None):
        changed = train_variants.variant_recipe(recipe, name, 0)
        differing = {f"{part}.{key}" for part in base for key in base[part] if base[part][key] != changed[part][key]}
        named = {f"{part}.{key}" for part, keys in recipe["variants"][name].items() for key in keys}
        assert differing == named
    with pytest.raises(SystemExit, match=r"unknown key training\.nonsense"):
        train_variants.variant_recipe(tomllib.loads(RECIPE), "wrong", 0)
    with pytest.raises(SystemExit, match="unknown variant 'bse'"):
        train_variants.variant_names(recipe, "bse")


def test_attention_with_an_extra_logit_of_zero(recipes):
    attention, _, _ = recipes
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    attended, _ = attention.attend(nn.Identity(), query, key, value, None, scaling=0.5)
    scores = (0.5 * query @ key.repeat_interleave(2, 1).mT).masked_fill(torch.ones(5, 5).triu(1) == 1, -torch.inf)
    weights = scores.exp() / (1 + scores.exp().sum(-1, keepdim=True))
    expected = (weights @ value.repeat_interleave(2, 1)).transpose(1, 2)
    # Sums of five products in single precision.
    assert torch.allclose(attended, expected, atol=1e-5)
