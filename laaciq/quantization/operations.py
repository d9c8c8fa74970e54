"""The cost of quantization, counted from shapes: of one matrix, of block-by-block calibration, of tuning."""

from __future__ import annotations

from dataclasses import replace

from laaciq.engine.work import Speed, Work
from laaciq.quantization.compensation import SWEEPS
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.rounding_kernels import BLOCK
from laaciq.quantization.thresholds import CORE_PIECE, OTHER_PIECE, REFINED, SCANNED
from laaciq.scoring.operations import ModelShape, Reading, backward, block_forward, comparing, forward, target_head

# Numbers read per weight when one grid of a group is tried, and operations started for each piece of a matrix.
_TRIED, _TRIED_CALLS = 30.0, 20.0
# Operations started for every matrix, and for every block of its inputs that is rounded or refined. The kernel takes as long as several.
_MATRIX_CALLS, _BLOCK_CALLS = 60.0, 30.0
# Numbers read per weight when codes become weights, and when a gradient of weights becomes one of scales; and in one kernel, on a GPU.
_DEQUANTIZED, _SCALE_GRADIENT, _FUSED = 12.0, 12.0, 2.0
# Numbers read per logit when two models' logits become a gradient.
_DESCENDED = 90.0
# Operations started per block and batch of tuning on a GPU, and how much longer its small products take than large ones.
_TUNED_CALLS, _SMALL = 700.0, 1.5
# Batches of a tuning step, on a CPU and on a GPU: sequences are drawn at random, and those of very different lengths do not share a batch.
_STEP_BATCHES, _GPU_STEP_BATCHES = 1.6, 1.5
# Shared by all machines, for shares of a whole alone.
_NOMINAL = Speed(products=5e10, factorizations=1e10, elements=1e10, calls=3e5)


def grid_search(outputs: int, inputs: int, importances: int = 1, *, on_cpu: bool = True) -> Work:
    """Cost of the best grid of every group; with several `importances` (languages), of the grid with the smallest worst error."""
    weights, tried = outputs * inputs, SCANNED + REFINED
    pieces = max(1.0, weights / (CORE_PIECE if on_cpu else OTHER_PIECE))
    products = 2 * importances * weights * tried if importances > 1 else 0
    return Work(products=products, elements=_TRIED * tried * weights, calls=_TRIED_CALLS * tried * pieces)


def nearest_rounding(outputs: int, inputs: int) -> Work:
    return Work(elements=20 * outputs * inputs, calls=30)


def second_order_rounding(outputs: int, inputs: int) -> Work:
    """GPTQ with known factors of H: block by block of inputs. A product passes errors on to the inputs after a block: o·i²."""
    later = sum(max(0, inputs - start - BLOCK) for start in range(0, inputs, BLOCK))
    return Work(products=2 * BLOCK * outputs * later, calls=_MATRIX_CALLS) + _kernels(outputs, inputs)


def compensated_rounding(outputs: int, inputs: int) -> Work:
    """Compensated targets, second-order rounding, and sweeps that refine the codes, with known factors of H."""
    square = outputs * inputs**2
    # Missing outputs, the change that makes up for them, half the gradient, and its update after every block of inputs: in the last sweep, of
    # the blocks after it.
    products = 2 * square + 4 * square + 2 * square + (2 * SWEEPS - 1) * square
    refining = Work(products=products) + _kernels(outputs, inputs) * SWEEPS
    return second_order_rounding(outputs, inputs) + refining


def _kernels(outputs: int, inputs: int) -> Work:
    """Cost of the sequential part, once over all inputs: every input updates those after it in its block."""
    return Work(elements=outputs * inputs * BLOCK, calls=_BLOCK_CALLS * -(-inputs // BLOCK))


def cholesky(inputs: int) -> Work:
    return Work(factorizations=1 / 3 * inputs**3, elements=10 * inputs**2, calls=10)


def inverse_factor(inputs: int) -> Work:
    """Cholesky, and the inverse of its factor."""
    return cholesky(inputs) + Work(factorizations=1 / 3 * inputs**3, elements=5 * inputs**2, calls=20)


def rounding(tensor: TensorPlan, importances: int = 1, *, on_cpu: bool = True) -> Work:
    """Cost of one matrix by its plan, without the calibration text and the factors of its second moments."""
    outputs, inputs = tensor.shape
    if not tensor.quantized:
        return Work()
    searched = tensor.clip in ("mse", "effective", "minimax")
    several = importances if tensor.clip == "minimax" else 1
    grid = grid_search(outputs, inputs, several, on_cpu=on_cpu) if searched else Work()
    match tensor.rounding:
        case "nearest":
            codes = nearest_rounding(outputs, inputs)
        case "second-order":
            codes = second_order_rounding(outputs, inputs)
        case "compensated":
            codes = compensated_rounding(outputs, inputs)
    if tensor.rank:
        small, large = sorted(tensor.shape)
        codes = codes + Work(factorizations=20 * small**2 * large)
    return grid + codes + Work(elements=2 * _DEQUANTIZED * outputs * inputs)


def rounding_share(tensor: TensorPlan) -> float:
    """Relative cost of the tensor's rounding within a plan, without a unit: for progress."""
    return rounding(tensor).seconds(_NOMINAL)


def second_moments(shape: ModelShape, reading: Reading) -> Work:
    """E[xxᵀ] of every layer's inputs in one pass: 2·i² operations per token and distinct input."""
    return forward(shape, reading, head=False) + sum(
        (_moments(shape, reading, index, 1) for index in range(shape.blocks)), Work()
    )


def _moments(shape: ModelShape, reading: Reading, index: int, matrices: int) -> Work:
    """Cost of second moments; `matrices` is 2 if inputs are also compared with the original's."""
    in_decoder = index >= shape.blocks - shape.decoder_blocks
    tokens = reading.decoded if shape.decoder_blocks and in_decoder else reading.read
    inputs = shape.inputs[index]
    squares = sum(width**2 for width in inputs)
    shares = list(zip(inputs, shape.input_shares[index], strict=True))
    return Work(
        products=2 * matrices * tokens * sum(share * width**2 for width, share in shares),
        elements=4 * matrices * tokens * sum(share * width for width, share in shares)
        + 3 * matrices * squares * reading.batches,
        calls=15 * len(inputs) * reading.batches,
    )


def block_by_block(shape: ModelShape, reading: Reading, *, compensated: bool) -> Work:
    """Cost of passing text through the blocks, and of the factors of their second moments. Each block runs once to collect second moments and
    once quantized. Compensated rounding also runs the original, except for the first block, whose inputs are the same. That block runs once
    more to record the calls.
    """
    work = block_forward(shape, reading, 0)
    for index in range(shape.blocks):
        beside = compensated and index > 0
        work = work + block_forward(shape, reading, index) * (3 if beside else 2)
        work = work + _moments(shape, reading, index, 2 if beside else 1)
        work = sum(map(inverse_factor, shape.inputs[index]), work)
    return work


def tuned_batches(steps: int, *, on_cpu: bool) -> float:
    """Batches of an epoch of so many steps."""
    return (_STEP_BATCHES if on_cpu else _GPU_STEP_BATCHES) * steps


def tuning(shape: ModelShape, learned: Reading, held: Reading, epochs: int, *, steps: int, on_cpu: bool = True) -> Work:
    """Cost of tuning. Every epoch reads the calibration text: the student forward and backward, in one or two batches for each of its `steps`,
    for which weights are dequantized. A second forward pass stands for the original's, which runs once, or for that of blocks that run again
    for their gradients. Validation text is read by the original once, and scored before and after every epoch.
    """
    batches = tuned_batches(steps, on_cpu=on_cpu)
    read = Reading(**{**vars(learned), "batches": batches})
    logits = Work(elements=_DESCENDED * shape.vocabulary * read.targets)
    step = forward(shape, read) * 2 + backward(shape, read)
    per_weight, per_block = 2 * _DEQUANTIZED + _SCALE_GRADIENT, 40.0
    if not on_cpu:
        step, per_weight, per_block = replace(step, products=_SMALL * step.products), 3 * _FUSED, _TUNED_CALLS
    weights = Work(elements=per_weight * shape.weights, calls=per_block * shape.blocks) * batches
    dequantized = Work(elements=_DEQUANTIZED * shape.weights) * held.batches
    # The original's blocks run once: its logits are formed from what the last one returned.
    compared = target_head(shape, held) + comparing(shape, held, 1, on_cpu=on_cpu)
    checked = forward(shape, held) + dequantized + compared
    return (step + weights + logits) * epochs + checked * (epochs + 1) + forward(shape, held, head=False)
