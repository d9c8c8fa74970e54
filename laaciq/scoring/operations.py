"""The cost of passes over text, counted from the shapes of a model and the lengths of the sequences."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from laaciq.engine.work import Work
from laaciq.models import Anatomy, LinearLayer
from laaciq.models.loading import Kind
from laaciq.scoring.likelihood import batches, compared_rows
from laaciq.scoring.sequences import ScoredPassage, ScoredSequence

# Numbers that norms, rotations, activations and sums read per token and block, as multiples of the block's width and of its widest layer.
_WIDTHS, _WIDEST = 40.0, 12.0
# Operations that a forward pass of a block starts; a backward pass starts twice as many.
_BLOCK_CALLS = 120.0
# Numbers read per logit when two models are compared, and when one is scored; an exponential counts as ten.
_COMPARED, _SCORED = 90.0, 12.0


@dataclass(frozen=True)
class ModelShape:
    """`matrices` are (outputs, inputs) of every linear layer in the blocks, by block. `inputs` are the widths of the different inputs that the
    layers of a block read: query, key and value share one. `shares` and `input_shares` are the shares of tokens that they read: less than
    one for experts. `attention` is the width of all heads together."""

    kind: Kind
    matrices: tuple[tuple[tuple[int, int], ...], ...]
    inputs: tuple[tuple[int, ...], ...]
    shares: tuple[tuple[float, ...], ...]
    input_shares: tuple[tuple[float, ...], ...]
    attention: int
    width: int
    vocabulary: int
    parameters: int
    decoder_blocks: int = 0

    @classmethod
    def of(cls, kind: Kind, anatomy: Anatomy) -> ModelShape:
        blocks = range(len(anatomy.block_names))
        by_block = [[linear for linear in anatomy.linears if linear.block == block] for block in blocks]
        attending = [linear for linear in anatomy.linears if linear.component == "attention"]
        tokens = max((matrix.shape for matrix in anatomy.token_matrices), default=(0, anatomy.linears[0].shape[1]))
        shared = [_shared_inputs(layers) for layers in by_block]
        return cls(
            kind=kind,
            matrices=tuple(tuple(linear.shape for linear in layers) for layers in by_block),
            inputs=tuple(tuple(width for width, _ in tensors) for tensors in shared),
            input_shares=tuple(tuple(share for _, share in tensors) for tensors in shared),
            shares=tuple(tuple(linear.share for linear in layers) for layers in by_block),
            # The last projection of attention reads the outputs of all heads.
            attention=attending[-1].shape[1] if attending else 0,
            width=tokens[1],
            vocabulary=tokens[0],
            parameters=anatomy.parameter_count(),
            decoder_blocks=sum("decoder" in name for name in anatomy.block_names) if kind == "encoder-decoder" else 0,
        )

    @property
    def blocks(self) -> int:
        return len(self.matrices)

    @property
    def block_weights(self) -> list[int]:
        """Weights of the linear layers of each block."""
        return [sum(outputs * inputs for outputs, inputs in shapes) for shapes in self.matrices]

    @property
    def weights(self) -> int:
        """Weights of all linear layers in the blocks."""
        return sum(self.block_weights)

    @property
    def widest(self) -> int:
        """Inputs of the widest layer."""
        return max(inputs for shapes in self.matrices for _, inputs in shapes)

    @property
    def most_tokens(self) -> float:
        """Tokens of text after which every layer has read one for each of its inputs, on average over experts."""
        layers = zip(self.matrices, self.shares, strict=True)
        return max(
            inputs / share for shapes, shares in layers for (_, inputs), share in zip(shapes, shares, strict=True)
        )


def _shared_inputs(layers: list[LinearLayer]) -> list[tuple[int, float]]:
    """Widths of the inputs, and the share of tokens in each. Layers of one module with the same number of inputs read the same tensor. The
    output projection of attention reads another one; it lies in the same module where that holds two layers (fused projections) or four
    (query, key, value, output).
    """
    modules: dict[str, list[LinearLayer]] = {}
    for layer in layers:
        modules.setdefault(layer.name.rsplit(".", 2)[0], []).append(layer)
    tensors: dict[tuple[str, int, bool], float] = {}
    for name, members in modules.items():
        for layer in members:
            last = layer is members[-1] and layer.component == "attention" and len(members) % 2 == 0
            tensors[name, layer.shape[1], last] = layer.share
    return [(inputs, share) for (_, inputs, _), share in tensors.items()]


@dataclass(frozen=True)
class Reading:
    """Sequences in batches: `tokens`, `squares` (Σ length²) and `decoded` tokens with padding, `read` tokens without it, `targets` that are
    scored. Of an encoder-decoder `tokens`, `squares` and `read` are the encoder's."""

    tokens: float = 0.0
    squares: float = 0.0
    read: float = 0.0
    targets: float = 0.0
    batches: float = 0.0
    decoded: float = 0.0

    @classmethod
    def of(cls, passages: list[ScoredPassage], most_tokens: int) -> Reading:
        """The passages in batches of at most `most_tokens` padded tokens."""
        return sum((_batch(sequences) for _, sequences in batches(passages, most_tokens)), cls())

    def __add__(self, other: Reading) -> Reading:
        return Reading(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, times: float) -> Reading:
        return Reading(*(times * amount for amount in astuple(self)))


def _batch(sequences: list[ScoredSequence]) -> Reading:
    rows, longest = len(sequences), max(len(s.inputs) for s in sequences)
    return Reading(
        tokens=rows * longest,
        squares=rows * longest**2,
        read=sum(len(s.inputs) for s in sequences),
        targets=sum(len(s.targets) for s in sequences),
        batches=1,
        decoded=rows * max(len(s.decoder or ()) for s in sequences),
    )


def forward(shape: ModelShape, reading: Reading, *, head: bool = True) -> Work:
    """One pass of the model; with `head`, logits of every target. A layer of o·i weights costs 2·o·i operations per token, attention
    4·length·width."""
    blocks = sum((block_forward(shape, reading, index) for index in range(shape.blocks)), Work())
    return blocks + target_head(shape, reading) if head else blocks


def target_head(shape: ModelShape, reading: Reading) -> Work:
    """Logits of every target, from what the last block returns."""
    return Work(products=2 * shape.vocabulary * shape.width * reading.targets, calls=10 * reading.batches)


def block_forward(shape: ModelShape, reading: Reading, index: int) -> Work:
    in_decoder = index >= shape.blocks - shape.decoder_blocks
    tokens = reading.decoded if shape.decoder_blocks and in_decoder else reading.tokens
    shares = shape.shares[index]
    weights = sum(o * i * share for (o, i), share in zip(shape.matrices[index], shares, strict=True))
    widest = max(inputs for _, inputs in shape.matrices[index])
    return Work(
        products=2 * weights * tokens + 4 * shape.attention * reading.squares,
        elements=tokens * (_WIDTHS * shape.width + _WIDEST * widest),
        calls=_BLOCK_CALLS * reading.batches,
    )


def backward(shape: ModelShape, reading: Reading) -> Work:
    """Gradients of all linear layers in the blocks: each costs two products of the size of its forward pass, the head one."""
    through = forward(shape, reading, head=False) * 2
    return through + Work(products=2 * shape.vocabulary * shape.width * reading.targets)


def scoring(shape: ModelShape, reading: Reading, candidates: int, *, on_cpu: bool = True) -> Work:
    """The original and candidates side by side, with the divergence of each; without candidates, the original's loss alone."""
    return forward(shape, reading) * (1 + candidates) + comparing(shape, reading, candidates, on_cpu=on_cpu)


def comparing(shape: ModelShape, reading: Reading, candidates: int, *, on_cpu: bool = True) -> Work:
    """Losses from known logits, and the divergence of each candidate."""
    logits = shape.vocabulary * reading.targets
    per_logit = candidates * _COMPARED or _SCORED
    rows = reading.targets / compared_rows(shape.vocabulary, on_cpu=on_cpu)
    return Work(elements=per_logit * logits, calls=25 * rows)
