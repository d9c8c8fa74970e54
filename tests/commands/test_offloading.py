"""The whole chain with every stage offloaded: the results are those of a model in memory, and few blocks are there at a time."""

import gc
import json
import weakref

import pytest
import torch

import laaciq
from laaciq.errors import BadOption, TooLittleMemory
from laaciq.models import ModelFolder, offloading
from laaciq.trials import memory
from tests.short_texts import write_short_texts
from tests.tiny import ARCHITECTURES, save_tiny

LANGUAGES = ["eng", "swa", "hin"]
OPTIONS = {"passages": 3, "served_bound": 100, "device": "cpu", "budget": 4.0}


@pytest.fixture
def one_block_at_a_time(monkeypatch):
    """As if there were room for nothing else. Tiny models have small blocks, and the work beside them is large."""

    def place(shape, device, limits, number_bytes, demand):
        return memory.Placement(1, packed=True, pair=demand.pair)

    monkeypatch.setattr("laaciq.trials.estimate.place_weights", place)


@pytest.fixture
def as_beside_a_gpu(monkeypatch):
    """On a CPU, weights that are dequantized as a whole are refused under a bound; beside a GPU they are offloaded."""
    monkeypatch.setattr(ModelFolder, "is_plain", True)


def run(model, out, texts, **options):
    """What it returns, and what it writes."""
    returned = laaciq.run(model, texts=texts, out=out, **{**OPTIONS, **options})
    results = {
        path.name: json.loads(path.read_text()) for path in sorted(out.rglob("*.json")) if "keys" not in path.parts
    }
    checkpoint = (out / "checkpoint" / "model.safetensors").read_bytes()
    return returned, ({name: result for name, result in results.items() if name != "run.json"}, checkpoint)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_short_texts(tmp_path_factory.mktemp("texts"), LANGUAGES, passages=16)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_goes_through_the_chain_and_gives_the_same_offloaded(architecture, tmp_path, texts, request):
    model = save_tiny(architecture, tmp_path / "model")
    result, expected = run(model, tmp_path / "whole", texts)
    assert {r.language for r in result.evaluation.languages} == set(LANGUAGES)
    assert all(r.kl_per_token > 0 for r in result.evaluation.languages)
    again = laaciq.evaluate(tmp_path / "whole/checkpoint", against=model, texts=texts, passages=3, served_bound=100)
    assert again.languages == result.evaluation.languages
    request.getfixturevalue("one_block_at_a_time")
    _, given = run(model, tmp_path / "offloaded", texts, host_memory="4GB")
    assert given == expected


def test_the_weights_of_two_blocks_at_most_are_there(tmp_path, texts, one_block_at_a_time, monkeypatch):
    """Of the original, and of each candidate: alive means that anything still refers to them."""
    alive: list[weakref.ref] = []
    most = 0

    def counted(fetch):
        def fetching(self, index):
            nonlocal most
            tensors = fetch(self, index)
            alive[:] = [reference for reference in alive if reference() is not None]
            alive.extend(weakref.ref(tensor) for tensor in tensors.values() if tensor.ndim > 1)
            most = max(most, sum(reference().numel() for reference in alive))
            return tensors

        return fetching

    model = save_tiny("llama", tmp_path / "model", num_hidden_layers=6)
    monkeypatch.setattr(offloading.HostWeights, "fetch", counted(offloading.HostWeights.fetch))
    gc.collect()
    run(model, tmp_path / "out", texts, host_memory="4GB")
    anatomy = laaciq.models.load(laaciq.models.find_model(model), device="cpu").anatomy
    by_block = [
        sum(torch.Size(linear.shape).numel() for linear in anatomy.linears if linear.block == n) for n in range(6)
    ]
    assert 0 < most <= 2 * max(by_block)


@pytest.mark.usefixtures("as_beside_a_gpu")
@pytest.mark.parametrize(
    "name", ["profile", "imatrix", "run", "compare", "mixture", "gateway", "intervene", "prune", "run_lab"]
)
def test_other_verbs_give_the_same_offloaded(name, tmp_path, request):
    """A profile of the original and of a checkpoint; studies of every kind."""
    texts = write_short_texts(tmp_path / "texts", ["eng", "swa", "hin"], passages=30)
    model = save_tiny("llama", tmp_path / "model", num_hidden_layers=4)
    read, measured = {"texts": texts}, {"texts": texts, "served_bound": 100, "passages": 4}

    def profiles(**options):
        checkpoint = tmp_path / "checkpoint"
        if not checkpoint.exists():
            laaciq.quantize(model, out=checkpoint, method="rtn", bits=4)
        profile = laaciq.profile(model, predictive=True, **read, **options)
        return profile, laaciq.profile(checkpoint, **read, **options)

    def matrix(**options):
        laaciq.imatrix(model, out=tmp_path / "imatrix", overwrite=True, **read, served_bound=100, **options)
        return (tmp_path / "imatrix/imatrix.gguf").read_bytes()

    def beside_losses(**options):
        chosen = {"method": "rtn", "numeric_check": True, "generate": True, "prompts": 2}
        result = laaciq.run(model, out=tmp_path / f"{options}", **chosen, **measured, **options)
        assert result.numeric_noise.largest > 0
        return result.numeric_noise, result.generation

    def compared(**options):
        rows = laaciq.compare(
            model, methods=("gptq", "planned"), out=tmp_path / f"{options}", **measured, **options
        ).rows
        return [row.evaluation for row in rows]

    def study(verb, **options):
        return lambda **bound: verb(model, **measured, **options, **bound).model_dump(exclude={"command"})

    results = {
        "profile": profiles,
        "imatrix": matrix,
        "run": beside_losses,
        "compare": compared,
        "mixture": study(laaciq.mixture, rounds=0, calibration_passages=(1,)),
        "gateway": study(laaciq.gateway, protect=2),
        "intervene": study(laaciq.intervene, do="kurtosis"),
        "prune": study(laaciq.intervene, do="pruning"),
        "run_lab": study(laaciq.run_lab, quick=True),
    }[name]
    expected = results()
    request.getfixturevalue("one_block_at_a_time")
    assert results(host_memory="4GB") == expected


@pytest.mark.usefixtures("as_beside_a_gpu")
@pytest.mark.parametrize("kind", ["ours", "with tables", "of another library", "plain"])
def test_a_checkpoint_is_evaluated_with_one_block_of_each_model_at_a_time(kind, tmp_path, texts, request, monkeypatch):
    shape = {"num_hidden_layers": 6, "num_key_value_heads": 4, "hidden_size": 64, "intermediate_size": 96}
    model, checkpoint = save_tiny("llama", tmp_path / "model", **shape), tmp_path / "checkpoint"
    if kind == "plain":
        save_tiny("llama", checkpoint, seed=1, **shape)
    elif kind == "of another library":
        laaciq.quantize(model, out=tmp_path / "ours", method="rtn", bits=4, group_size=32)
        laaciq.export(tmp_path / "ours", format="gptq", out=checkpoint)
    else:
        tables = {"method": "adaptive", "table_overhead": 1.0, "texts": texts, "served_bound": 100}
        made = laaciq.quantize(
            model, out=checkpoint, bits=3, **(tables if kind == "with tables" else {"method": "rtn"})
        )
        assert bool(made.plans.plans[""].tables) == (kind == "with tables")

    def evaluated(**options):
        whole = laaciq.evaluate(checkpoint, against=model, texts=texts, passages=3, served_bound=100, **options)
        return whole.model_dump(exclude={"command"})

    expected = evaluated()
    request.getfixturevalue("one_block_at_a_time")
    fetched = []
    fetch = offloading.OffloadedBlocks.present
    monkeypatch.setattr(
        offloading.OffloadedBlocks, "present", lambda self, index: fetched.append(id(self)) or fetch(self, index)
    )
    assert evaluated(host_memory="4GB") == expected
    assert len(set(fetched)) == 2


def test_weights_that_are_dequantized_as_a_whole_need_room_for_all(tmp_path, texts, one_block_at_a_time, monkeypatch):
    shape = {"num_key_value_heads": 4, "hidden_size": 64, "intermediate_size": 96}
    model, ours, theirs = (tmp_path / name for name in ("model", "ours", "theirs"))
    save_tiny("llama", model, **shape)
    laaciq.quantize(model, out=ours, method="rtn", bits=4, group_size=32)
    laaciq.export(ours, format="gptq", out=theirs)
    options = {"texts": texts, "passages": 3, "served_bound": 100, "device": "cpu"}
    with pytest.raises(TooLittleMemory, match="dequantized into host memory as a whole; give more"):
        laaciq.evaluate(theirs, against=model, host_memory="4GB", **options)
    with pytest.raises(TooLittleMemory, match=r"--host-memory does not suffice for .*ours"):
        laaciq.profile(ours, texts=texts, host_memory="4GB", device="cpu")
    monkeypatch.undo()
    whole = laaciq.evaluate(theirs, against=model, **options)
    assert laaciq.evaluate(theirs, against=model, host_memory="8GB", **options).languages == whole.languages


def test_what_needs_two_whole_models_is_refused(tmp_path, one_block_at_a_time):
    """Other libraries do. Their row says so."""
    model = save_tiny("llama", tmp_path / "model")
    options = {"languages": ["eng", "swa"], "passages": 3, "served_bound": 100, "device": "cpu"}
    (row,) = laaciq.compare(model, methods=["nf4"], out=tmp_path / "compare", host_memory="4GB", **options).rows
    assert row.evaluation is None
    assert "memory does not suffice for two of" in row.reason


def test_a_bound_that_is_too_small_is_refused_with_the_least(tmp_path, texts):
    with pytest.raises(TooLittleMemory, match=r"too little memory even for one block at a time: give --host-memory \d"):
        laaciq.quantize("reference", texts=texts, out=tmp_path / "out", host_memory="100MB", budget=4.0)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("size", ["24", "GB", "-1GB", "0GB", "1e3GB", "nan GB", ""])
def test_what_is_no_amount_of_memory_is_refused(size, tmp_path):
    with pytest.raises(BadOption, match="is not an amount of memory: give for example 24GB"):
        laaciq.plan(host_memory=size)


def test_gpu_memory_is_refused_where_it_bounds_nothing():
    with pytest.raises(BadOption, match="models run on the CPU here: give --host-memory"):
        laaciq.plan(gpu_memory="24GB", device="cpu")
