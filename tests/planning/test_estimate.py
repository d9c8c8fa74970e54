"""What the estimate counts is what planning does."""

from dataclasses import replace

import pytest
import torch

from laaciq.corpus import read_split
from laaciq.engine.work import Speed, Work
from laaciq.models import find_model
from laaciq.options import MeasureOptions, WeightOptions
from laaciq.planning.estimate import estimate_stages
from laaciq.trials.estimate import CostModel
from laaciq.trials.memory import Placement
from tests.families import save_family
from tests.tiny import save_tiny


@pytest.fixture(scope="module")
def split():
    return read_split("builtin").select(["eng", "swa"])


# About an accelerator's. One measured here would differ from call to call.
SPEED = Speed(products=1e14, factorizations=1e11, elements=1e11, calls=1e5)


def seconds(folder, split, device, **options):
    """Of curvature, as if on this device."""
    costs = CostModel.of(find_model(folder), MeasureOptions(), torch.device("cpu"))
    costs = replace(costs, device=torch.device(device), speed=SPEED)
    stages = estimate_stages(costs, split, WeightOptions(method="planned", **options), last="plan")
    return next(stage.seconds for stage in stages if stage.name == "curvature")


def test_an_accelerator_computes_while_operations_are_started():
    work = Work(products=3e14, elements=1e11, calls=2e5, copied=1e10)
    assert (work * 2).seconds(SPEED) == 2 * (3 + 1 + 2)
    assert work.seconds(replace(SPEED, copied=1e9)) == 4 + 10
    assert (work + Work(calls=9e5)).seconds(replace(SPEED, copied=1e9)) == 11 + 10


def test_blocks_that_are_read_from_files_cost_time(tmp_path, split):
    """Every time; those in pinned memory are there in time."""
    costs = CostModel.of(find_model(save_tiny("llama", tmp_path)), MeasureOptions(), torch.device("cpu"))
    costs = replace(costs, device=torch.device("cuda"), speed=replace(SPEED, copied=1e6))
    options = WeightOptions(method="planned", effort="fast")

    def stages(most_bytes, pinned_bytes=0):
        placed = replace(costs, placement=Placement(most_bytes, packed=True, pinned_bytes=pinned_bytes))
        return {stage.name: stage.seconds for stage in estimate_stages(placed, split, options, last="checkpoint")}

    # A quarter of the weights, and the rest in pinned memory or in files.
    there, rest = costs.model_bytes // 4, costs.model_bytes - costs.model_bytes // 4
    everywhere, pinned, files = stages(None), stages(there, rest), stages(there)
    assert everywhere == pytest.approx(pinned)
    once = rest / 1e6
    assert files["second moments"] - pinned["second moments"] == pytest.approx(once)
    assert files["rounding of 2 plans"] - pinned["rounding of 2 plans"] == pytest.approx(2 * once)
    read_often = [name for name in files if files[name] > pinned[name] + 0.99 * once]
    assert read_often == [
        "profile", "curvature", "second moments", "rounding of 2 plans", "validation of 2 plans", "tuning",
    ]  # fmt: skip


def test_curvature_on_an_accelerator_counts_the_batches_that_run(tmp_path, split):
    dense, experts = save_tiny("llama", tmp_path / "dense"), save_family("Qwen3-MoE", tmp_path / "experts")
    # Most of the time of so small a model goes into starting operations, and there are few batches.
    assert seconds(dense, split, "cuda") < seconds(dense, split, "cpu") / 2
    # One by one, where gradients of sequences cannot be told apart.
    assert seconds(dense, split, "cuda", budget_for="model") == seconds(dense, split, "cpu", budget_for="model")
    assert seconds(experts, split, "cuda") == seconds(experts, split, "cpu")
