"""What the estimate counts is what planning does."""

from dataclasses import replace

import pytest
import torch

import laaciq
from laaciq.commands.opening import open_session
from laaciq.commands.settings import Settings
from laaciq.corpus import read_split
from laaciq.engine.work import Speed, Work
from laaciq.errors import TooLittleMemory
from laaciq.models import ModelFolder, find_model
from laaciq.options import MeasureOptions, PlanOptions, WeightOptions
from laaciq.planning.estimate import estimate_stages, memory_demand
from laaciq.trials.estimate import CostModel
from laaciq.trials.memory import Demand, MemoryLimits, Placement, packed_bytes
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
    work = Work(products=3e14, elements=1e11, calls=2e5, copied=1e10, pinned=4e10)
    assert (work * 2).seconds(SPEED) == 2 * (3 + 1 + 2)
    accelerator = replace(SPEED, copied=1e9, pinned=8e9)
    assert work.seconds(accelerator) == 4 + 10 + 5
    assert (work + Work(calls=9e5)).seconds(accelerator) == 11 + 10 + 5
    assert (work + Work(prefetched=6.4e10)).seconds(accelerator) == 8 + 10 + 5


def test_blocks_that_are_read_from_files_cost_time(tmp_path, split):
    """Every time; those in pinned memory are there in time, unless they come more slowly than blocks run."""
    costs = CostModel.of(find_model(save_tiny("llama", tmp_path)), MeasureOptions(), torch.device("cpu"))
    costs = replace(costs, device=torch.device("cuda"), speed=replace(SPEED, copied=1e6, pinned=1e8))
    options = WeightOptions(method="planned", effort="fast")

    def costs_of(*placement, speed=costs.speed, **more):
        placed = replace(costs, placement=Placement(*placement, **more), speed=speed)
        return {stage.name: stage for stage in estimate_stages(placed, split, options, last="checkpoint")}

    def stages(most_bytes, pinned_bytes=0):
        return {name: stage.seconds for name, stage in costs_of(most_bytes, True, pinned_bytes).items()}

    # A quarter of the weights, and the rest in pinned memory or in files.
    there, rest = costs.model_bytes // 4, costs.model_bytes - costs.model_bytes // 4
    everywhere, pinned, files = stages(None), stages(there, rest), stages(there)
    assert everywhere == pytest.approx(pinned)
    slow = costs_of(there, True, rest, speed=replace(costs.speed, pinned=1e5))
    assert slow["second moments"].seconds == pytest.approx(rest / 1e5)
    # As slowly as three times as many bytes of memory.
    once = 3 * rest / 1e6
    assert files["second moments"] - pinned["second moments"] == pytest.approx(once)
    assert files["rounding of 2 plans"] - pinned["rounding of 2 plans"] == pytest.approx(2 * once)
    read_often = [name for name in files if files[name] > pinned[name] + 0.99 * once]
    assert read_often == [
        "profile", "curvature", "second moments", "rounding of 2 plans", "validation of 2 plans", "tuning",
    ]  # fmt: skip
    # Codes that are away cost time where candidates run, and host memory instead of the GPU's.
    near, away = (costs_of(there, True, rest, away=away) for away in (False, True))
    codes = packed_bytes(costs.shape)
    for name, stage in near.items():
        runs = name in ("validation of 2 plans", "tuning")
        assert (away[name].seconds > stage.seconds + 0.99 * codes / 1e8) == runs
        assert away[name].memory_bytes - stage.memory_bytes == pytest.approx(codes if runs else 0)
        assert (away[name].device_bytes < stage.device_bytes) == runs


def test_what_is_dequantized_lies_in_host_memory_as_a_whole(tmp_path, split, monkeypatch):
    """Beside a GPU: while it is loaded, and then as far as it is neither on the GPU nor pinned. A plain model stays in its files."""
    folder = find_model(save_tiny("llama", tmp_path))
    costs = CostModel.of(folder, MeasureOptions(), torch.device("cpu"))
    whole = costs.model_bytes
    placement = Placement(whole // 2, packed=True, pinned_bytes=whole // 4)
    costs = replace(
        costs, device=torch.device("cuda"), speed=replace(SPEED, copied=1e6, pinned=1e7), placement=placement
    )

    def memory(of=None, beside=None):
        measuring = costs.measuring(split.test, beside=beside).memory_bytes
        return costs.loading(of).memory_bytes, measuring

    plain = memory()
    assert memory(folder, folder) == plain
    monkeypatch.setattr(ModelFolder, "is_plain", False)
    rest = whole - whole // 2 - whole // 4
    loading, measuring = memory()
    assert loading - plain[0] == whole - whole // 4
    assert measuring - plain[1] == rest
    assert memory(folder, folder)[1] - measuring == rest


def test_host_memory_that_cannot_be_kept_beside_a_gpu_is_refused(tmp_path, monkeypatch):
    folder = find_model(save_tiny("llama", tmp_path))
    session = open_session(PlanOptions(model=str(tmp_path)), Settings())
    costs = CostModel.of(folder, MeasureOptions(), torch.device("cpu"))
    session.__dict__["costs"] = replace(costs, placement=Placement(1, packed=True))
    monkeypatch.setattr(type(session), "place", torch.device("cuda"))
    for limit, plain in ((costs.model_bytes, False), (costs.model_bytes - 1, True)):
        session.limits = MemoryLimits(host=limit)
        monkeypatch.setattr(ModelFolder, "is_plain", plain)
        assert session.loaded_by(lambda folder, **where: where)["most_bytes"] == 1
    monkeypatch.setattr(ModelFolder, "is_plain", False)
    with pytest.raises(TooLittleMemory, match="--host-memory does not suffice"):
        session.loaded_by(lambda folder, **where: where)


def test_curvature_on_an_accelerator_counts_the_batches_that_run(tmp_path, split):
    dense, experts = save_tiny("llama", tmp_path / "dense"), save_family("Qwen3-MoE", tmp_path / "experts")
    # Most of the time of so small a model goes into starting operations, and there are few batches.
    assert seconds(dense, split, "cuda") < seconds(dense, split, "cpu") / 2
    # One by one, where gradients of sequences cannot be told apart.
    assert seconds(dense, split, "cuda", budget_for="model") == seconds(dense, split, "cpu", budget_for="model")
    assert seconds(experts, split, "cuda") == seconds(experts, split, "cpu")


@pytest.mark.parametrize(
    ("options", "demand"),
    [
        ({"method": "planned"}, Demand()),
        ({"method": "planned", "tune": 0}, Demand(tuning=False)),
        ({"method": "gptq"}, Demand(tuning=False)),
        ({"method": "adaptive"}, Demand(tuning=False)),
        ({"method": "rtn"}, Demand(moments=False, tuning=False)),
        ({"method": "minimax", "tune": 1}, Demand(moments=False)),
        ({"plan": "plan.json"}, Demand()),
    ],
)
def test_memory_is_needed_for_what_the_method_does(options, demand):
    assert memory_demand(WeightOptions(**options)) == demand


def test_a_plan_file_takes_what_its_plan_does(tmp_path, split):
    """Its tuning, its number of passages and its languages, whatever the options of a method would be."""
    model, file = save_tiny("llama", tmp_path / "model"), tmp_path / "plan.json"
    made = {"languages": ["eng", "swa"], "served_bound": 100, "device": "cpu", "group_size": 16}
    plan = laaciq.plan(model, out=file, calibration_languages=["swa"], tune=2, **made).plan
    costs = CostModel.of(find_model(model), MeasureOptions(), torch.device("cpu"))
    # Where starting operations and rounding take no time, reading text does.
    reading = Speed(products=1e9, factorizations=1e15, elements=1e15, calls=1e15)

    def seconds(stage, **changed):
        file.write_text(plan.model_copy(update=changed).model_dump_json())
        options = WeightOptions(plan=str(file))
        stages = estimate_stages(replace(costs, speed=reading), split, options, last="checkpoint", served=["eng"])
        return {stage.name: stage.seconds for stage in stages}.get(stage)

    assert seconds("tuning", tuned=0) is None
    assert seconds("tuning", tuned=6) > 2 * seconds("tuning")
    for stage in ("rounding", "tuning"):
        assert seconds(stage, passages=4 * plan.passages) > 1.5 * seconds(stage)
        assert seconds(stage, weights={"eng": 0.5, "swa": 0.5}) > 1.5 * seconds(stage)
