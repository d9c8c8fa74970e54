from dataclasses import replace

import pytest
import torch
from torch import nn

from laaciq.quantization.embeddings import QuantizedEmbedding
from laaciq.quantization.int4_tiles import row_places, tile, untile, untile_rows
from laaciq.quantization.layers import QuantizedLinear, prepare_layers, why_dequantized
from laaciq.quantization.matrices import quantize_matrix
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.stored import stored_tensors

CPU = torch.device("cpu")


def plan(**changes):
    return TensorPlan(**{"name": "w", "shape": (64, 64), "bits": 4, "group_size": 64, "symmetric": True, **changes})


@pytest.mark.parametrize("changes", [{}, {"group_size": 32}, {"group_size": "channel"}, {"symmetric": False}])
def test_what_runs_on_int4_kernels(changes):
    layer = QuantizedLinear(plan(**changes), bias=False)
    layer.prepare(torch.bfloat16)
    assert layer.kernel == "int4"
    assert why_dequantized(layer.plan, torch.bfloat16, CPU) is None


@pytest.mark.parametrize(
    ("changes", "dtype", "device", "words"),
    [
        ({}, torch.float32, "cpu", "need bfloat16; this computes in float32"),
        ({}, torch.bfloat16, "mps", "need a CPU or a CUDA device"),
        ({"bits": 3}, torch.float32, "cpu", "need 4-bit codes; these have 3"),
        ({"keep": 1.0}, torch.bfloat16, "cpu", "1 % are kept here"),
        ({"rank": 2}, torch.bfloat16, "cpu", "no low-rank correction; it has rank 2 here"),
        ({"shape": (48, 64)}, torch.bfloat16, "cpu", "do not fit groups of 64 in a layer of 48×64"),
        ({"shape": (64, 96)}, torch.bfloat16, "cpu", "do not fit groups of 64 in a layer of 64×96"),
        ({"group_size": "tensor"}, torch.bfloat16, "cpu", "do not fit groups of 64"),
        ({"group_size": 16}, torch.bfloat16, "cpu", "do not fit groups of 16"),
        ({"keep": 1.0}, torch.bfloat16, "cuda", "1 % are kept here"),
        ({"rank": 2}, torch.bfloat16, "cuda", "no low-rank correction; it has rank 2 here"),
        ({"bits": 5}, torch.bfloat16, "cuda", "no codes of 5 bits"),
        ({"bits": 7}, torch.bfloat16, "cuda", "no codes of 7 bits"),
        ({"bits": 3, "shape": (64, 48)}, torch.bfloat16, "cuda", "in multiples of 32; this layer has 48"),
    ],
)
def test_what_keeps_a_layer_off_kernels(changes, dtype, device, words):
    assert words in why_dequantized(plan(**changes), dtype, torch.device(device))


@pytest.mark.parametrize("shape", [(64, 64), (32, 96), (224, 128)])
def test_codes_come_back_from_the_layout_of_the_int4_kernel(shape):
    codes = torch.randint(16, shape, dtype=torch.uint8)
    tiles, rows = tile(codes), torch.tensor([31, 0, shape[0] - 1, 0])
    assert torch.equal(untile(tiles), codes)
    assert torch.equal(untile_rows(tiles, row_places(shape), rows), codes[rows])


def filled(layer):
    """The layer with random weights, with its tables twice and three times the shared scales."""
    quantized = quantize_matrix(torch.randn(layer.plan.shape), layer.plan)
    if layer.plan.tables:
        quantized = replace(quantized, tables=torch.stack([quantized.grid.scales * factor for factor in (2, 3)]))
    layer.load_state_dict(stored_tensors(quantized, layer.plan), strict=False)
    return layer


class Tied(nn.Module):
    """Embeddings, a layer with tables, and a head that is tied to the embeddings."""

    def __init__(self, dtype):
        super().__init__()
        torch.manual_seed(0)
        tied = plan(shape=(96, 64), symmetric=False, used_by=("table", "head"))
        self.table = filled(QuantizedEmbedding(tied, nn.Embedding(96, 64, dtype=dtype)))
        self.layer = filled(QuantizedLinear(plan(tables=2, symmetric=False), bias=False))
        self.head = QuantizedLinear(tied, bias=False, owner=self.table)
        self.layer.dtype = self.head.dtype = dtype

    def forward(self, ids):
        return self.head(torch.relu(self.layer(self.table(ids))))


def test_codes_are_held_once_and_saved_and_moved_as_they_were():
    model, ids = Tied(torch.bfloat16), torch.tensor([[5, 95, 64]])
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    looked_up = model.table(ids)
    model(ids)
    assert {model.layer.kernel, model.head.kernel} == {"int4"}
    held = [tensor for part in model.modules() for tensor in part._buffers.values() if tensor is not None]
    codes = [tensor for tensor in held if tensor.dtype == torch.uint8 and tensor.numel() >= 64 * 64 // 2]
    assert sum(tensor.nbytes for tensor in codes) == (64 + 96) * 64 // 2
    assert torch.equal(model.table(ids), looked_up)
    for state in (model.state_dict(), model.to(torch.float32).state_dict()):
        assert state.keys() == before.keys()
        assert all(torch.equal(state[name], before[name]) for name in before)
    # In float32 all are dequantized, from the same codes.
    model(ids)
    assert model.head.kernel == "dequantized"
    assert torch.equal(model.head.weight, model.table.weight)
    other = filled(QuantizedLinear(plan(tables=2, symmetric=False), bias=False))
    x = torch.randn(1, 64)
    other(x.bfloat16())
    other.load_state_dict(model.layer.state_dict())
    assert torch.equal(other(x), model.layer(x))


@pytest.mark.parametrize(("dtype", "kernel"), [(torch.float32, "dequantized"), (torch.bfloat16, "int4")])
def test_layers_compile_to_one_graph_which_follows_a_switch_of_tables(dtype, kernel):
    model, ids = Tied(dtype), torch.tensor([[5]])
    prepare_layers(model)
    torch._dynamo.reset()
    counts = torch._dynamo.utils.counters["stats"]
    before = counts["unique_graphs"]
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    results = []
    with torch.no_grad():
        for table in (None, 0, 1, None):
            model.layer.use(table)
            results.append(compiled(ids))
            assert torch.equal(results[-1], model(ids))
    assert model.layer.kernel == kernel
    assert not torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[3])
    assert counts["unique_graphs"] - before == 1
