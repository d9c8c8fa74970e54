"""Where weights are placed, from shapes alone: no GPU is needed to decide it."""

import re

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from laaciq.errors import BadOption, TooLittleMemory
from laaciq.models import dissect
from laaciq.scoring.operations import ModelShape
from laaciq.trials.memory import (
    MEASURING,
    PAIR,
    PROFILING,
    Demand,
    MemoryLimits,
    candidate_bytes,
    measuring_bytes,
    packed_bytes,
    parse_bytes,
    place_weights,
    taken_bytes,
    working_bytes,
)

CPU, GPU = torch.device("cpu"), torch.device("cuda")
GB = 2**30


def place(shape, device, limits, demand=Demand()):
    """In float32 on a CPU, in bfloat16 on a GPU."""
    return place_weights(shape, device, limits, 4 if device is CPU else 2, demand)


@pytest.fixture(autouse=True)
def free(monkeypatch):
    """As if there were a GPU with 96 GB; tests set what is free."""
    memory = {"cuda": 96 * GB, "cpu": 64 * GB}
    monkeypatch.setattr("laaciq.trials.memory.free_memory", lambda device: memory[device.type])
    return memory


def llama(width, feed_forward, blocks, key_values=None):
    config = AutoConfig.for_model(
        "llama",
        hidden_size=width,
        intermediate_size=feed_forward,
        num_hidden_layers=blocks,
        num_attention_heads=width // 128,
        num_key_value_heads=key_values,
        vocab_size=32000,
    )
    with torch.device("meta"):
        return ModelShape.of("causal", dissect(AutoModelForCausalLM.from_config(config)))


@pytest.fixture(scope="module")
def shape():
    """A Llama of 7 billion weights: 12.6 GB in 16 bits."""
    return llama(4096, 11008, 32)


def test_with_less_room_candidates_are_packed_and_then_blocks_are_offloaded(shape):
    plenty, some, little = (place(shape, GPU, MemoryLimits(gpu=size * GB)) for size in (80, 28, 16))
    assert (plenty.most_bytes, plenty.packed) == (None, False)
    assert (some.most_bytes, some.packed) == (None, True)
    assert little.packed and little.most_bytes < 2 * shape.parameters
    assert little.most_bytes + working_bytes(shape, GPU, 2) < 16 * GB


@pytest.mark.parametrize("size", [28, 24, 16])
def test_a_packed_candidate_has_room_beside_the_original(size, shape):
    """Its codes and what is computed meanwhile: the rule of `StoredLayers.nearer`."""
    for demand in (Demand(), MEASURING):
        placement = place(shape, GPU, MemoryLimits(gpu=size * GB), demand)
        original = min(2 * shape.parameters, placement.most_bytes or 2 * shape.parameters)
        assert placement.packed
        assert taken_bytes(original + packed_bytes(shape) + candidate_bytes(shape, GPU, 2), GPU) < size * GB + 2**20


def test_two_plain_models_share_the_room(shape):
    size = 2 * shape.parameters
    both, halves = (place(shape, GPU, MemoryLimits(gpu=gpu * GB), PAIR) for gpu in (48, 24))
    assert (both.most_bytes, both.pinned_bytes, both.pair) == (None, 0, True)
    assert 0.3 * size < halves.most_bytes < size
    assert 2 * (size - halves.most_bytes) < 2 * halves.pinned_bytes < 64 * GB
    assert taken_bytes(2 * halves.most_bytes + measuring_bytes(shape, GPU, 2), GPU) <= 24 * GB
    # What is measured alone needs less than what is also tuned.
    assert 2 * halves.most_bytes > place(shape, GPU, MemoryLimits(gpu=24 * GB)).most_bytes
    with pytest.raises(TooLittleMemory, match="give --gpu-memory"):
        place(shape, GPU, MemoryLimits(gpu=4 * GB), PAIR)
    with pytest.raises(BadOption, match="--host-memory has no effect here"):
        place(shape, GPU, MemoryLimits(gpu=48 * GB, host=8 * GB), PAIR)
    assert place(shape, CPU, MemoryLimits(), PAIR).most_bytes is None
    assert place(shape, CPU, MemoryLimits(host=24 * GB), PAIR).pinned_bytes == 0


def test_13_billion_weights_fit_in_24_gigabytes():
    shape = llama(5120, 13824, 40)
    placement = place(shape, GPU, MemoryLimits(gpu=24 * GB, host=64 * GB))
    assert placement.pinned_bytes > 2 * shape.parameters - placement.most_bytes


def test_70_billion_weights_fit_in_80_gigabytes_with_codes_in_host_memory(free):
    shape = llama(8192, 28672, 80, key_values=8)
    free["cpu"] = 32 * GB
    with pytest.raises(TooLittleMemory, match="fit neither on the GPU nor in host memory") as refused:
        place(shape, GPU, MemoryLimits(gpu=80 * GB))
    host, gpu = re.findall(r"give ([\d.]+) GB of free host memory, or ([\d.]+) GB of GPU memory", str(refused.value))[0]
    free |= {"cpu": int(float(host) * GB), "cuda": 160 * GB}
    away = place(shape, GPU, MemoryLimits(gpu=80 * GB))
    assert away.away and away.packed
    assert (
        away.most_bytes + working_bytes(shape, GPU, 2, away=True)
        < 74 * GB
        < away.most_bytes + working_bytes(shape, GPU, 2)
    )
    # Codes and offloaded weights share what may be pinned.
    assert 0 <= away.pinned_bytes < 0.1 * GB
    free["cpu"] *= 2
    more = place(shape, GPU, MemoryLimits(gpu=80 * GB))
    assert more.pinned_bytes == pytest.approx(packed_bytes(shape), rel=0.01)
    with pytest.raises(TooLittleMemory, match=rf"give --host-memory {host}GB or more"):
        place(shape, GPU, MemoryLimits(gpu=80 * GB, host=32 * GB))
    assert not place(shape, GPU, MemoryLimits(gpu=int(float(gpu) * GB))).away


def test_what_a_command_does_not_do_needs_no_room(free):
    """70 billion weights on a card of 32 GB, and little host memory: a profile makes no codes, and rounding to nearest tunes nothing."""
    shape = llama(8192, 28672, 80, key_values=8)
    small = MemoryLimits(gpu=32 * GB)
    for demand in (Demand(), Demand(moments=False), Demand(tuning=False)):
        with pytest.raises(TooLittleMemory, match="give --gpu-memory"):
            place(shape, GPU, small, demand)
    measured = place(shape, GPU, small, MEASURING)
    assert measured.away and measured.packed
    free["cpu"] = 16 * GB
    with pytest.raises(TooLittleMemory, match="packed codes fit neither"):
        place(shape, GPU, small, MEASURING)
    profiled = place(shape, GPU, small, PROFILING)
    assert not profiled.away
    assert profiled.most_bytes > measured.most_bytes
    assert profiled.most_bytes + working_bytes(shape, GPU, 2, PROFILING) < 32 * GB
    # Two models share what one would have.
    assert place(shape, GPU, small, PAIR).most_bytes == profiled.most_bytes // 2
    free["cpu"] = 64 * GB
    assert place(shape, GPU, MemoryLimits(gpu=64 * GB), Demand(tuning=False)).away


def test_no_bound_makes_more_memory_free_than_there_is(shape, free):
    """A card of 24 GB has a little less when a program begins, and serves as one of 24 GB."""
    free["cuda"] = 24 * GB
    bounded = place(shape, GPU, MemoryLimits(gpu=24 * GB))
    assert place(shape, GPU, MemoryLimits()) == bounded
    assert place(shape, GPU, MemoryLimits(gpu=80 * GB)) == bounded
    free["cuda"] = 23 * GB
    assert place(shape, GPU, MemoryLimits(gpu=24 * GB)).most_bytes < bounded.most_bytes
    free["cuda"] = 2 * GB
    with pytest.raises(TooLittleMemory, match=r"give a GPU with .* of free memory"):
        place(shape, GPU, MemoryLimits(gpu=80 * GB))


@pytest.mark.parametrize("host", [8, 24])
def test_as_much_is_pinned_as_host_memory_has_room_for(host, shape):
    assert 0.5 * host * GB < place(shape, GPU, MemoryLimits(gpu=16 * GB, host=host * GB)).pinned_bytes < host * GB


def test_a_gpu_holds_tensors_and_its_own(shape):
    assert taken_bytes(8 * GB, CPU) == 8 * GB
    assert taken_bytes(8 * GB, GPU) > 9 * GB


def test_without_a_bound_everything_is_in_memory_on_a_cpu(shape):
    placement = place(shape, CPU, MemoryLimits())
    assert (placement.most_bytes, placement.packed) == (None, False)


@pytest.mark.parametrize(("device", "option"), [(CPU, "host"), (GPU, "gpu")])
def test_the_least_that_is_named_is_enough(device, option, shape):
    with pytest.raises(TooLittleMemory) as refused:
        place(shape, device, MemoryLimits(**{option: 2 * GB}))
    (size,) = re.findall(rf"--{option}-memory (\S+) or more", str(refused.value))
    assert place(shape, device, MemoryLimits(**{option: parse_bytes(size, option)})).packed


def test_host_memory_is_refused_beside_a_gpu_that_holds_all(shape):
    with pytest.raises(BadOption, match="--host-memory has no effect here"):
        place(shape, GPU, MemoryLimits(gpu=80 * GB, host=8 * GB))
    assert place(shape, GPU, MemoryLimits(gpu=16 * GB, host=1 * GB)).pinned_bytes < GB
