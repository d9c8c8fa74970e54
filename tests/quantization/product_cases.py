"""Products with packed matrices, their weights and gradients of their scales, beside those of unpacked matrices. A program with a device as
its argument: with `TRITON_INTERPRET=1` the kernels run in Triton's interpreter, on the CPU.
"""

import sys

import torch

from laaciq.quantization.fixed_codes import PackedCodes, UnpackedCodes
from laaciq.quantization.matrices import quantize_matrix
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.products import KERNEL_BITS, PackedMatrix, Packing, packed_product, packed_weights
from laaciq.quantization.stored import stored_tensors

# Outputs that fill no tile; scales by group, also a last one that is short and ones that divide a unit, by row and for all.
SHAPES = {(5, 96): 32, (3, 160): "channel", (2, 64): "tensor", (9, 1120): 48}
# Rows of several steps, the last of them not full, in units of one word and of three.
LONG = {8: (3, 2560), 6: (3, 2560)}


def main(device: str) -> None:
    torch.manual_seed(0)
    shapes = [(bits, shape, group_size) for bits in KERNEL_BITS for shape, group_size in SHAPES.items()]
    shapes += [(bits, shape, 64) for bits, shape in LONG.items()]
    for number, (bits, shape, group_size) in enumerate(shapes):
        # Both kinds of grid at each bit width, and with each kind of scales.
        symmetric = (number + bits // 2) % 2 == 0
        plan = TensorPlan(name="w", shape=shape, bits=bits, group_size=group_size, symmetric=symmetric)
        compare(plan, device)
        compare_gradients(plan, device)
    compare_compiled(device)


def matrix(plan: TensorPlan, device: str) -> tuple[torch.Tensor, PackedMatrix]:
    """Dequantized weights, and the packed matrix."""
    quantized = quantize_matrix(torch.randn(plan.shape), plan)
    parts = {name: part.to(device) for name, part in stored_tensors(quantized, plan).items()}
    packed = PackedMatrix(parts["codes"], parts["scales"], parts.get("zeros"), Packing.of(plan), plan.shape[0])
    return quantized.dequantize(plan).to(device), packed


def compare(plan: TensorPlan, device: str) -> None:
    weights, packed = matrix(plan, device)
    assert torch.equal(packed_weights(packed, torch.float32), weights), plan
    # Not bfloat16, which the interpreter truncates.
    assert torch.equal(packed_weights(packed, torch.float16), weights.half()), plan
    x = torch.randn(1, plan.shape[1], device=device)
    # Sums in float32, in another order.
    torch.testing.assert_close(
        packed_product(x, packed), x @ weights.T, rtol=1e-4, atol=1e-4, msg=lambda m: f"{plan}\n{m}"
    )
    half = torch.randn(3, plan.shape[1], device=device).half()
    # Sums are in float32, so only the result is rounded. With several tokens the weights are in 16 bits, too.
    for inputs, read in ((half[:1], weights), (half, weights.half().float())):
        wanted = (inputs.float() @ read.T).half()
        torch.testing.assert_close(
            packed_product(inputs, packed), wanted, rtol=2e-3, atol=2e-3, msg=lambda m: f"{plan}\n{m}"
        )


def compare_gradients(plan: TensorPlan, device: str) -> None:
    """Weights and gradients of scales that have moved."""
    quantized = quantize_matrix(torch.randn(plan.shape, device=device), plan)
    parts = {name: part.to(device) for name, part in stored_tensors(quantized, plan).items()}
    unpacked, packed = UnpackedCodes(quantized, plan), PackedCodes.of(parts, plan)
    scales = quantized.grid.scales * 1.25
    assert torch.equal(packed.weights(scales), unpacked.weights(scales)), plan
    gradient = torch.randn(plan.shape, device=device)
    # Sums in float32, in another order.
    torch.testing.assert_close(
        packed.by_scale(gradient), unpacked.by_scale(gradient), rtol=1e-4, atol=1e-4, msg=lambda m: f"{plan}\n{m}"
    )


def compare_compiled(device: str) -> None:
    """In one graph, which reads inputs lane by lane. Another table of scales of the same shape compiles nothing anew."""
    plan = TensorPlan(name="w", shape=(48, 96), bits=4, group_size=32, symmetric=False)
    weights, packed = matrix(plan, device)

    def both(x: torch.Tensor, scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = packed._replace(scales=scales)
        return packed_product(x, chosen), packed_weights(chosen, torch.float32)

    compiled = torch.compile(both, fullgraph=True, backend="inductor" if device == "cuda" else "aot_eager")
    for tokens, read in ((1, weights), (2, weights.half().float())):
        x = torch.randn(tokens, 96, device=device).half()
        for factor in (1, 2):
            product, dequantized = compiled(x, factor * packed.scales)
            # As in `compare`.
            wanted = (factor * x.float() @ read.T).half()
            torch.testing.assert_close(product, wanted, rtol=2e-3, atol=2e-3)
            torch.testing.assert_close(dequantized, factor * weights)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


if __name__ == "__main__":
    main(sys.argv[1])
