"""Tuned scales: parameters that are stored in 16 bits anyway are trained so that the quantized model predicts what the original predicts.

Codes, and so the size, do not change. Σ_λ w_λ E_λ[KL(original ‖ quantized)] per token of calibration text is minimised by gradient descent on
scales, norm gains and biases. (EfficientQAT, Chen et al. 2024, tunes step sizes end to end, on the loss of one text for all.)
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from laaciq.corpus.texts import Passages
from laaciq.engine.fast_products import fast_products, training_type
from laaciq.engine.progress import Advance, Progress
from laaciq.models import LanguageModel
from laaciq.options import MeasureOptions
from laaciq.profiling.activations import prepare_whole
from laaciq.quantization.calibration import Calibration
from laaciq.quantization.grid import Layers
from laaciq.quantization.plan import Plan
from laaciq.quantization.stored_layers import StoredLayers
from laaciq.quantization.student import Student
from laaciq.quantization.tuning_state import KeptEpochs, TuningState
from laaciq.scoring.last_hidden import LastHidden
from laaciq.scoring.likelihood import batch_tokens, batches, compared_parts, score, target_logits
from laaciq.scoring.operations import ModelShape
from laaciq.scoring.sequences import ScoredPassage, ScoredSequence

# Initial learning rates of θ at 3 bits; they fall to zero along a cosine. They halve with every further bit, as the step of the grid does:
# higher rates undo what rounding gained. (The reference model, 4 bits, KL on held-out text: compensated 0.0864; tuned at 2.5 times this
# rate no better, at this rate 0.0843.)
SCALE_RATE, VECTOR_RATE = 2e-3, 8e-4
# Tokens per step, and the fewest per dequantization, for any vocabulary: with fewer, most time would go into dequantizing. Larger and so
# fewer steps came less close to the original.
STEP_TOKENS = 512
# Most steps of an epoch on an accelerator, where a step takes nearly as long whatever it reads: with more text than that many read, each reads
# more. (The reference model, 125,000 tokens, two epochs, KL on validation text: 245 steps 0.0629 at 4 bits and 0.238 at 3, 128 steps 0.0633
# and 0.242, 64 steps 0.0640 and 0.246.)
MOST_STEPS = 128
# Most tokens of a batch on an accelerator, with padding: a long sequence does not pad all others of its step, and memory is bounded. Most steps
# are one batch or two. (Steps of sequences of like length take 30 % fewer batches, but end at a KL that is 0.3 to 0.5 % higher.)
BATCH_TOKENS = 2048
# Calibration passages per validation passage that the epoch is chosen by.
_LEARNED_FOR_ONE = 4
# Sequences with their languages.
_Sequences = list[tuple[str, ScoredSequence]]
# Cost of a token of calibration text, in forward passes: the student and its gradients.
_LEARNED = 3
# In a masked model, one token in this many is masked.
_MASKED_EVERY = 7


@dataclass(frozen=True)
class Tuned:
    """`layers` with tuned scales and otherwise unchanged; `others` are norm gains and biases by name, in 16 bits. `divergences` is the
    languages' weighted KL per token on validation text, before tuning and after every epoch. The best epoch is kept.
    """

    layers: Layers
    others: Mapping[str, torch.Tensor]
    divergences: list[float]


def tune(
    model: LanguageModel,
    plan: Plan,
    layers: Layers,
    calibration: Calibration,
    *,
    epochs: int,
    kept: KeptEpochs | None = None,
    recompute: bool | None = None,
    progress: Progress = Progress(),
) -> Tuned:
    """`layers` tuned towards `model`, which does not change, on the languages that the plan weighs.

    The result is never worse than untuned on validation text. Calibration text cannot decide that: the codes were rounded to fit it. `kept`
    keeps every epoch; those that are there are not done again. `recompute` as in `Student`: by default on an accelerator, and if blocks of
    the model are offloaded.
    """
    if recompute is None:
        recompute = model.device.type != "cpu" or model.offloaded is not None
    texts = calibration.texts.select(plan.languages)
    if plan.passages is not None:
        texts = texts.spread(plan.passages)
    most_passages = max(map(len, texts.by_language.values()))
    checked = calibration.validation_texts(plan.languages).spread(validation_passages(most_passages))
    learned, held = (
        {code: _prediction_tasks(model, part[code], calibration.options) for code in plan.weights}
        for part in (texts, checked)
    )
    stored = StoredLayers.of(layers, model.device)
    if recompute:
        stored = _nearer(stored, model, progress)
    student = Student(model, stored, recompute=recompute)
    student_model = replace(model, module=student, offloaded=student.offloaded)
    pool = [(code, s) for code, passages in learned.items() for p in passages for s in p.sequences if s.targets]
    by_token = weights_by_token(pool, plan.weights)
    tokens = sum(len(s) for _, s in pool)
    steps = steps_per_epoch(tokens, model.device)
    optimizer = torch.optim.Adam(_rates(student))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (1 + math.cos(math.pi * step / (epochs * steps))) / 2
    )
    narrowest = min(linear.shape[1] for linear in model.anatomy.linears)
    products = training_type(model.device, model.dtype, narrowest)
    chance = random.Random(calibration.options.seed)
    # On a CPU, dequantizing once more is cheaper than computing padding.
    most = STEP_TOKENS if model.device.type == "cpu" else BATCH_TOKENS
    checking = sum(passage.scored_tokens for passages in held.values() for passage in passages)
    scored = [s for passages in held.values() for passage in passages for s in passage.sequences if s.targets]
    read = [s for _, s in pool] + scored
    total = float(sum(map(len, read)) + epochs * _LEARNED * tokens + (epochs + 1) * checking)
    with progress.stage("tuning", total) as advance, fast_products():
        original = LastHidden(model, read, advance=advance)
        state = TuningState(student, optimizer, schedule)
        divergences, best = state.divergences, student.stored()
        for epoch in range(epochs + 1):
            shuffled = list(_steps(pool, steps, chance)) if epoch else []
            if kept is not None and kept.restore(epoch, state):
                advance(checking + (_LEARNED * tokens if epoch else 0))
            else:
                for step in shuffled:
                    for codes, sequences in _batched(step, most):
                        weights = [by_token[code] for code, s in zip(codes, sequences, strict=True) for _ in s.targets]
                        by_target = torch.tensor(weights, device=model.device) * steps
                        with student.multiplying_in(products):
                            _descend(original, student_model, sequences, by_target)
                    optimizer.step()
                    optimizer.zero_grad()
                    schedule.step()
                    advance(_LEARNED * sum(len(s) for _, s in step))
                divergences.append(_divergence(original, student_model, held, plan.weights, advance))
                if kept is not None:
                    kept.keep(epoch, state)
            if divergences[-1] == min(divergences):
                best = student.stored()
    return Tuned(*best, divergences)


def _nearer(stored: StoredLayers, model: LanguageModel, progress: Progress) -> StoredLayers:
    """The packed codes on the model's device if they fit there beside what tuning needs."""
    stored = stored.nearer(beside=tuned_bytes(ModelShape.of(model.kind, model.anatomy)))
    if not stored.near:
        progress.say("Packed codes do not fit on the GPU beside the work: tuning copies them there for every batch.")
    return stored


def tuned_bytes(shape: ModelShape) -> float:
    """GPU memory of tuning beside the original and packed codes: scales with their gradients and the optimizer's state; everything outside the
    blocks in float32 and copied; a block in float32 with its gradients; a batch's activations and logits.
    """
    scales = 0.4 * shape.weights
    outside = 6 * (shape.parameters - shape.weights)
    block = 10 * max(shape.block_weights)
    inside = 4 * BATCH_TOKENS * (10 * shape.width + 4 * shape.widest + 6 * shape.vocabulary)
    return scales + outside + block + inside


def steps_per_epoch(tokens: float, device: torch.device) -> int:
    steps = max(1, round(tokens / STEP_TOKENS))
    return steps if device.type == "cpu" else min(MOST_STEPS, steps)


def validation_passages(learned: int) -> int:
    """Validation passages per language for choosing the epoch, given the number of calibration passages."""
    return -(-learned // _LEARNED_FOR_ONE)


def _rates(student: Student) -> list[dict[str, Any]]:
    """Parameter groups with their learning rates. Gains and biases act on all weights, so they use the mean number of bits."""
    by_bits: dict[int, list[torch.nn.Parameter]] = {}
    tensors = list(student.layers.plans.values())
    for tensor, steps in zip(tensors, student.scale_steps, strict=True):
        by_bits.setdefault(tensor.bits, []).append(steps)
    weights = sum(tensor.weights for tensor in tensors)
    mean = sum(tensor.bits * tensor.weights for tensor in tensors) / weights
    scales = [{"params": parameters, "lr": SCALE_RATE * 2.0 ** (3 - bits)} for bits, parameters in by_bits.items()]
    return [*scales, {"params": list(student.vector_steps), "lr": VECTOR_RATE * 2.0 ** (3 - mean)}]


def weights_by_token(pool: _Sequences, weights: Mapping[str, float]) -> dict[str, float]:
    """Weight of a token by language. A language counts by its weight, not by the length of its text."""
    tokens = Counter(code for code, s in pool for _ in s.targets)
    return {code: weight / max(tokens[code], 1) for code, weight in weights.items()}


def _prediction_tasks(model: LanguageModel, passages: Passages, options: MeasureOptions) -> list[ScoredPassage]:
    """The passages with the tokens to predict. For a masked model, one token in `_MASKED_EVERY` is masked."""
    prepared = prepare_whole(model, passages, options)
    return prepared if model.kind != "masked" else [_masked(model, passage, n) for n, passage in enumerate(prepared)]


def _masked(model: LanguageModel, passage: ScoredPassage, number: int) -> ScoredPassage:
    sequences = []
    for s in passage.sequences:
        # The token at p is named by p − 1; see `prepare_whole`.
        hidden = [p + 1 for p in s.positions][number % _MASKED_EVERY :: _MASKED_EVERY]
        inputs = [model.tokenizer.mask_token_id if p in hidden else token for p, token in enumerate(s.inputs)]
        sequences.append(ScoredSequence(inputs, hidden, [s.inputs[p] for p in hidden]))
    return ScoredPassage(sequences, passage.scored_bytes)


def _steps(pool: _Sequences, count: int, chance: random.Random) -> Iterator[_Sequences]:
    """All sequences, shuffled and divided into `count` parts, so that each part mixes languages."""
    shuffled = chance.sample(pool, len(pool))
    for part in range(count):
        yield shuffled[part::count]


def _batched(step: _Sequences, most: int) -> Iterator[tuple[list[str], list[ScoredSequence]]]:
    for owners, sequences in batches([ScoredPassage([s], 0) for _, s in step], most):
        yield [step[owner][0] for owner in owners], sequences


def _descend(
    original: LastHidden, student: LanguageModel, sequences: list[ScoredSequence], weights: torch.Tensor
) -> None:
    """Add the gradient of Σ weight·KL(p ‖ q), which is weight·(q − p) for the logits of q. The original's logits are kept for one batch
    only.
    """
    given = target_logits(student, sequences)
    wanted, gradient = original.logits(sequences), torch.empty_like(given)
    with torch.no_grad():
        for g, q, p, weight in compared_parts(gradient, given, wanted, weights):
            torch.mul(q.float().softmax(-1).sub_(p.float().softmax(-1)), weight[:, None], out=g)
    given.backward(gradient)


def _divergence(
    original: LastHidden,
    student: LanguageModel,
    passages: Mapping[str, list[ScoredPassage]],
    weights: Mapping[str, float],
    advance: Advance,
) -> float:
    scores = score(
        original.model,
        student,
        [passage for prepared in passages.values() for passage in prepared],
        most_tokens=max(batch_tokens(original.model), STEP_TOKENS),
        known=original.logits,
        advance=advance,
    )
    owner = np.repeat(np.arange(len(passages)), [len(prepared) for prepared in passages.values()])
    by_language = np.bincount(owner, scores.kl) / np.maximum(np.bincount(owner, scores.tokens), 1)
    return float(sum(weights[code] * kl for code, kl in zip(passages, by_language, strict=True)))
