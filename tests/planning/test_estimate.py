"""What the estimate counts is what planning does."""

from dataclasses import replace

import pytest
import torch

from laaciq.corpus import read_split
from laaciq.engine.work import Speed
from laaciq.models import find_model
from laaciq.options import MeasureOptions, WeightOptions
from laaciq.planning.estimate import estimate_stages
from laaciq.trials.estimate import CostModel
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


def test_curvature_on_an_accelerator_counts_the_batches_that_run(tmp_path, split):
    dense, experts = save_tiny("llama", tmp_path / "dense"), save_family("Qwen3-MoE", tmp_path / "experts")
    # Most of the time of so small a model goes into starting operations, and there are few batches.
    assert seconds(dense, split, "cuda") < seconds(dense, split, "cpu") / 2
    # One by one, where gradients of sequences cannot be told apart.
    assert seconds(dense, split, "cuda", budget_for="model") == seconds(dense, split, "cpu", budget_for="model")
    assert seconds(experts, split, "cuda") == seconds(experts, split, "cpu")
