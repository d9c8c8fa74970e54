"""Plans that were edited by hand or come from strangers."""

import json
import os

import pytest

from laaciq.errors import BadOption
from laaciq.models import find_model, load
from laaciq.options import WeightOptions
from laaciq.planning.decision import read_plan_file
from laaciq.planning.rules import make_plans
from tests.tiny import save_tiny

LANGUAGES = ["eng", "swa"]


@pytest.fixture(scope="module")
def anatomy(tmp_path_factory):
    return load(find_model(save_tiny("llama", tmp_path_factory.mktemp("model")))).anatomy


@pytest.fixture
def edited(anatomy, tmp_path):
    """Reads a plan after a change."""
    options = WeightOptions(method="rtn", bits=3, group_size=16, embedding_bits=8)
    plan = json.loads(make_plans(anatomy, options).first.model_dump_json())

    def read(change):
        changed = change(plan)
        (tmp_path / "plan.json").write_text(json.dumps(plan if changed is None else changed))
        return read_plan_file(tmp_path / "plan.json", anatomy, LANGUAGES)

    return read


def first(**changes):
    return lambda plan: plan["tensors"][0].update(changes)


def whole(**changes):
    return lambda plan: plan.update(changes)


def twice(plan):
    plan["tensors"].append(plan["tensors"][0])


def without_one(plan):
    del plan["tensors"][3]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda plan: [plan], "holds a list"),
        (twice, "q_proj.weight is planned twice"),
        (without_one, "of model.layers.0.self_attn.o_proj.weight|model.layers.0.self_attn.o_proj.weight"),
        (whole(tensors=[]), r"model\.layers\.0"),
        (first(rank=-1), r"tensors\.0\.rank should be"),
        (first(rank=33), "rank 33 is more than"),
        (first(tables=-1), r"tensors\.0\.tables"),
        (first(tables=2), "tables of scales"),
        (first(bits=3.0), r"tensors\.0\.bits should be a valid integer"),
        (first(bits="3"), r"tensors\.0\.bits should be a valid integer"),
        (first(bits=9), "9 bits"),
        (first(group_size=0), "group size 0"),
        (first(keep=50.0), "50 %"),
        (first(keep=float("nan")), r"NaN or infinity at tensors\.0\.keep"),
        (first(shape=[32.0, 32.0]), r"tensors\.0\.shape\.0 should be a valid integer"),
        (first(shape=[-32, -32]), r"tensors\.0\.shape\.0"),
        (first(shape=[32, 64]), "for another model"),
        (first(name="lm_head.weight"), "for another model|is planned twice"),
        (first(used_by=["lm_head"]), "for another model"),
        (first(clip="tight"), r"tensors\.0\.clip"),
        (whole(tuned=-3), "tuned should be"),
        (whole(tuned=1), "has no weights"),
        (whole(passages=0), "passages should be"),
        (whole(weights={"eng": 0.0, "swa": 0.0}), "weights of all languages are zero"),
        (whole(weights={"eng": -1.0, "swa": 2.0}), r"weights\.eng should be"),
        (whole(weights={"eng": float("inf")}), r"NaN or infinity at weights\.eng"),
        (whole(weights={"eng": float("nan")}), r"NaN or infinity at weights\.eng"),
        (whole(weights={"tam": 1.0}), "has a weight for tam"),
        (whole(tables=[["eng"]], weights={"eng": 1.0}), "tables of scales"),
        (whole(tables=[["eng"], ["eng"]], weights={"eng": 1.0}), "each of them once|only once"),
        (whole(predicted={"eng": float("inf")}), r"NaN or infinity at predicted\.eng"),
        (whole(version=2), "version should be 3"),
        (whole(extra=1), "extra is not known"),
    ],
)
def test_what_cannot_be_is_refused(edited, change, says):
    with pytest.raises(BadOption, match=rf"plan\.json .*({says})"):
        edited(change)


def test_weights_are_shares_and_sizes_are_counted_again(edited):
    plan = edited(whole(weights={"eng": 3, "swa": 1}, size={**dict.fromkeys(SIZE, 1), "compression": 1.0}))
    assert plan.weights == {"eng": 0.75, "swa": 0.25}
    assert plan.size.block_bytes > 1000


SIZE = ("block_bytes", "block_bits_per_weight", "model_bytes", "model_bits_per_weight", "original_model_bytes")


@pytest.mark.parametrize("kind", ["folder", "pipe", "bytes"])
def test_what_is_no_file(anatomy, tmp_path, kind):
    path = tmp_path / "plan.json"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(b"\xd3\xff\x00")
    with pytest.raises(BadOption, match=r"plan\.json (is a folder|is a named pipe|is not UTF-8)"):
        read_plan_file(path, anatomy, LANGUAGES)
