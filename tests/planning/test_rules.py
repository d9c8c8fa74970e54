import pytest

import laaciq
from laaciq.errors import BadOption, UnknownLanguage
from laaciq.models import find_model, load
from laaciq.options import BITS, METHODS, MeasureOptions, WeightOptions
from laaciq.planning.description import describe
from laaciq.planning.rules import cluster_languages, make_plans
from laaciq.profiling.profile import profile_model
from tests.tiny import save_tiny

FEW = ["eng", "swa", "hin", "rus"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load(find_model(save_tiny("llama", tmp_path_factory.mktemp("model") / "llama", num_hidden_layers=4)))


@pytest.fixture(scope="module")
def profile(model):
    texts = laaciq.read_split("builtin").calibration.select(FEW).spread(2)
    return profile_model(model, texts, MeasureOptions(), outlier_kurtosis=50)


def bits_by_block(plan):
    result = {}
    for tensor in plan.tensors:
        result.setdefault(int(tensor.name.split(".")[2]), set()).add(tensor.bits)
    return result


def test_protected_blocks_of_all_groups_are_united_in_one_checkpoint(model, profile):
    options = WeightOptions(protect=("0", "swa+hin=1", "eng=3"), group_size=16)
    plan = make_plans(model.anatomy, options, profile).first
    assert bits_by_block(plan) == {0: {16}, 1: {16}, 2: {4}, 3: {16}}


def test_separate_checkpoints_protect_each_group_s_own_blocks(model, profile):
    options = WeightOptions(protect=("0", "swa+hin=1", "eng=3"), protect_bits=8, separate=True, group_size=16)
    plans = make_plans(model.anatomy, options, profile)
    assert {name: plan.languages for name, plan in plans.plans.items()} == {
        "swa+hin": ["swa", "hin"],
        "eng": ["eng"],
        "others": ["rus"],
    }
    assert bits_by_block(plans.plans["swa+hin"]) == {0: {8}, 1: {8}, 2: {4}, 3: {4}}
    assert bits_by_block(plans.plans["others"]) == {0: {8}, 1: {4}, 2: {4}, 3: {4}}
    assert plans.serving("hin") == "swa+hin"
    assert plans.total_bytes == sum(plan.size.model_bytes for plan in plans.plans.values())


def test_a_calibration_a_language_is_a_checkpoint_a_language(model, profile):
    plans = make_plans(model.anatomy, WeightOptions(method="effective", separate=True, group_size=16), profile)
    assert {name: plan.languages for name, plan in plans.plans.items()} == {code: [code] for code in FEW}


@pytest.mark.parametrize("bits", BITS)
def test_a_plan_of_la_aciq_names_our_fit_where_none_is_published(model, profile, bits):
    options = WeightOptions(method="la-aciq", bits=bits, group_size=16)
    assert ("f fitted by us" in describe(make_plans(model.anatomy, options, profile))) == (bits != 4)
    assert "fitted" not in describe(make_plans(model.anatomy, WeightOptions(method="gptq", bits=bits), profile))


def test_more_bits_where_kurtosis_is_large(model, profile):
    """Random weights have κ near 0: a threshold between two blocks' κ tells them apart."""
    ranked = sorted(profile.blocks, key=lambda block: block.kurtosis)
    between = (ranked[-1].kurtosis + ranked[-2].kurtosis) / 2
    options = WeightOptions(outlier_bits=8, outlier_kurtosis=between, group_size=16)
    result = bits_by_block(make_plans(model.anatomy, options, profile).first)
    assert {block for block, bits in result.items() if bits == {8}} == {ranked[-1].block}


def test_kurtosis_by_component_and_bits_for_attention(model, profile):
    components = {linear.name: linear.component for linear in model.anatomy.linears}
    plan = make_plans(model.anatomy, WeightOptions(attention_bits=8, group_size=16)).first
    assert {tensor.bits for tensor in plan.tensors if components[tensor.name] == "attention"} == {8}
    assert {tensor.bits for tensor in plan.tensors if components[tensor.name] != "attention"} == {4}
    options = WeightOptions(outlier_bits=8, outlier_kurtosis=-10, outlier_by="component", group_size=16)
    assert {tensor.bits for tensor in make_plans(model.anatomy, options, profile).first.tensors} == {8}


@pytest.mark.parametrize(
    ("method", "clip"), [("rtn", "minmax"), ("aciq", "aciq"), ("minimax", "mse"), ("gptq", "mse"), ("adaptive", "mse")]
)
def test_embeddings_and_head_get_bits_of_their_own(model, profile, method, clip):
    """On the same kind of grid, rounded to nearest, by a rule that reads no text; the blocks are what they were."""
    options = {"method": method, "group_size": 16, "symmetric": False, "rank": 3, "keep": 1.0, "table_overhead": 1.0}
    without = make_plans(model.anatomy, WeightOptions(**options), profile).first
    plan = make_plans(model.anatomy, WeightOptions(embedding_bits=8, **options), profile).first
    assert plan.in_blocks == without.tensors
    assert [tensor.name for tensor in plan.token_matrices] == ["model.embed_tokens.weight", "lm_head.weight"]
    for tensor in plan.token_matrices:
        assert (tensor.bits, tensor.group_size, tensor.symmetric) == (8, 16, False)
        assert (tensor.clip, tensor.rounding, tensor.rank, tensor.kept, tensor.tables) == (clip, "nearest", 0, 0, 0)
    assert plan.size.block_bytes == without.size.block_bytes
    # Of 16 bits, 8 are saved, and for every group of 16 a scale and a zero point are paid.
    assert without.size.model_bytes - plan.size.model_bytes == 2 * 400 * 32 * (16 - 8 - (16 + 8) / 16) / 8


def test_a_correction_is_counted_and_is_never_of_more_than_full_rank(model):
    sizes = [make_plans(model.anatomy, WeightOptions(group_size=16, rank=r)).first.size for r in (0, 4)]
    layers = 4 * ((32 + 32) * 2 + (32 + 16) * 2 + (32 + 64) * 3)
    assert sizes[1].block_bytes - sizes[0].block_bytes == 2 * 4 * layers
    plan = make_plans(model.anatomy, WeightOptions(group_size=16, rank=1000)).first
    assert all(tensor.rank == min(tensor.shape) for tensor in plan.tensors)


@pytest.mark.parametrize(("overhead", "tables"), [(1.0, 1), (2.0, 2), (3.9, 3), (16.0, 4)])
def test_the_number_of_tables_follows_from_the_overhead(model, profile, overhead, tables):
    """A table of 16-bit scales for groups of 16 costs one bit per weight; more tables than languages make no sense."""
    options = WeightOptions(method="adaptive", group_size=16, table_overhead=overhead)
    plan = make_plans(model.anatomy, options, profile).first
    assert len(plan.tables) == tables
    assert sorted(code for members in plan.tables for code in members) == sorted(FEW)
    assert plan.size.block_bits_per_weight == pytest.approx(4 + 1 + tables)


def test_languages_that_use_their_inputs_alike_share_a_table(profile):
    alike = profile["eng"].model_copy(update={"language": "deu"})
    with_twin = profile.model_copy(update={"languages": [*profile.languages, alike]})
    clusters = cluster_languages(with_twin, [*FEW, "deu"], 4)
    assert ["eng", "deu"] in clusters


def test_languages_that_are_not_served_decide_nothing(model, profile):
    rates = sorted(result.bits_per_byte for result in profile.languages)
    options = WeightOptions(method="minimax", group_size=16)
    plan = make_plans(model.anatomy, options, profile, served_bound=(rates[0] + rates[1]) / 2).first
    assert plan.languages == [min(profile.languages, key=lambda result: result.bits_per_byte).language]


def test_one_language_may_decide_for_all(model, profile):
    """As in the baseline, calibrated on English."""
    plan = make_plans(
        model.anatomy, WeightOptions(method="gptq", calibration_languages=("English",), group_size=16), profile
    ).first
    assert plan.languages == ["eng"]


@pytest.mark.parametrize("method", [method.name for method in METHODS.values() if method.reads_text])
def test_languages_that_are_held_out_decide_nothing_under_any_method(model, profile, method):
    options = WeightOptions(method=method, hold_out=("Swahili",), group_size=16, table_overhead=3.0)
    plan = make_plans(model.anatomy, options, profile).first
    assert plan.languages == ["eng", "hin", "rus"]
    assert "swa" not in {code for members in plan.tables for code in members}


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"protect": ("9",)}, BadOption, "there is no block 9; the model has 0 to 3"),
        ({"protect": ("first",)}, BadOption, "names no blocks"),
        ({"protect": ("xyz=1",)}, UnknownLanguage, "unknown language 'xyz'"),
        (
            {"protect": ("yor=1",), "separate": True},
            BadOption,
            "names yor, which is not served or has no calibration text",
        ),
        ({"method": "gptq", "calibration_languages": ("yor",)}, BadOption, "--calibration-languages names yor"),
        ({"method": "gptq", "hold_out": ("yor",)}, BadOption, "--hold-out names yor, which has no text here"),
        ({"method": "gptq", "hold_out": tuple(FEW)}, BadOption, "--hold-out leaves no language to calibrate on"),
        (
            {"method": "gptq", "hold_out": ("swa",), "calibration_languages": ("eng", "swa")},
            BadOption,
            "--calibration-languages and --hold-out both name swa",
        ),
        ({"method": "adaptive", "table_overhead": 0.1}, BadOption, "one table costs 1 bits per weight"),
    ],
)
def test_plans_that_cannot_be_made(model, profile, options, error, says):
    with pytest.raises(error, match=says):
        make_plans(model.anatomy, WeightOptions(group_size=16, **options), profile)


def test_methods_that_read_text_need_a_profile(model):
    with pytest.raises(BadOption, match="needs a profile"):
        make_plans(model.anatomy, WeightOptions(method="minimax"))
