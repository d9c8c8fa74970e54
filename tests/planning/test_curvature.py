from dataclasses import replace

import pytest
import torch

import laaciq
from laaciq.models import find_model, load
from laaciq.models.loading import skeleton
from laaciq.options import MeasureOptions
from laaciq.planning import curvature
from laaciq.planning.curvature import measure_curvature
from laaciq.planning.curvature_batches import MOST_TOKENS, gradient_tokens, usual_tokens
from laaciq.scoring.likelihood import target_losses
from laaciq.scoring.operations import ModelShape
from laaciq.scoring.sequences import prepare_all
from tests.families import save_family
from tests.tiny import ARCHITECTURES, save_tiny

FEW = ["eng", "swa"]
# Beside the tiny architectures: a state-space model, and one with other parts beside the language model.
FAMILIES_IN_ROWS = ["Mamba 2", "Falcon-H1", "Qwen3-VL"]


@pytest.fixture(scope="module")
def texts():
    return laaciq.read_texts().select(FEW).spread(2)


def cut(texts, *lengths):
    """Passages of these lengths in characters, in turn: a masked model reads a passage many times, so they are short here."""
    return replace(
        texts,
        by_language={
            code: replace(p, texts=tuple(t[: lengths[k % len(lengths)]] for k, t in enumerate(p.texts)))
            for code, p in texts.by_language.items()
        },
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_is_the_mean_squared_gradient_of_whole_passages(architecture, tmp_path, texts):
    model = load(find_model(save_tiny(architecture, tmp_path / "model")), device="cpu")
    name, matrix = next(iter(model.anatomy.matrices.items()))
    short = cut(texts, 60)
    result = measure_curvature(model, model.anatomy.matrices, short, MeasureOptions())
    assert set(result.by_tensor) == set(model.anatomy.matrices)
    expected, tokens = torch.zeros(matrix.shape), 0
    parameter = next(p for p in model.module.parameters() if p.data_ptr() == matrix.data_ptr()).requires_grad_(True)
    passages = short["swa"]
    for passage in prepare_all(model, passages):
        for sequence in passage.sequences:
            if sequence.targets:
                loss = target_losses(model, [sequence]).sum()
                gradient = torch.autograd.grad(loss, parameter)[0]
                expected += (gradient if gradient.shape == matrix.shape else gradient.t()).square()
                tokens += len(sequence.targets)
    errors = torch.ones(matrix.shape)
    assert result.losses(name, errors)[1] == pytest.approx(float(expected.sum()) / (2 * tokens), rel=1e-4)


def in_blocks(model):
    return [linear.name for linear in model.anatomy.linears]


@pytest.fixture
def rows(monkeypatch):
    """The number of sequences in each forward pass, in a list that grows."""
    seen = []

    def counted(model, sequences):
        seen.append(len(sequences))
        return target_losses(model, sequences)

    monkeypatch.setattr(curvature, "target_losses", counted)
    return seen


def assert_same(result, expected):
    assert (result.languages, result.pooled) == (expected.languages, expected.pooled)
    for name, sums in expected.by_tensor.items():
        # Float32 sums in another order, because products have more rows: 3e-6 at most was seen.
        torch.testing.assert_close(result.by_tensor[name], sums, rtol=1e-4, atol=0.0, msg=name)
        assert sums.any()


@pytest.mark.parametrize("most_bytes", [None, 1], ids=["whole", "offloaded"])
@pytest.mark.parametrize("architecture", [*ARCHITECTURES, *FAMILIES_IN_ROWS])
def test_sequences_in_batches_give_the_same_as_one_by_one(architecture, most_bytes, tmp_path, texts, rows):
    save = save_tiny if architecture in ARCHITECTURES else save_family
    model = load(find_model(save(architecture, tmp_path / "model")), device="cpu", most_bytes=most_bytes)
    # Of different lengths, so that most rows are padded. Both languages are in every batch.
    mixed = cut(texts, 24, 80)
    expected = measure_curvature(model, in_blocks(model), mixed, MeasureOptions())
    done = []
    rows.clear()
    result = measure_curvature(
        model, in_blocks(model), mixed, MeasureOptions(), most_tokens=100_000, advance=done.append
    )
    assert len(rows) == 1 and rows[0] >= 4
    assert sum(done) == 4
    assert_same(result, expected)


def test_batches_hold_as_many_tokens_as_they_may_and_passages_are_counted_once(tmp_path, texts, rows):
    model = load(find_model(save_tiny("bert", tmp_path / "model")), device="cpu")
    mixed = cut(texts, 24, 80)
    done = []
    measure_curvature(model, in_blocks(model), mixed, MeasureOptions(), most_tokens=120, advance=done.append)
    assert 1 < max(rows) < len(rows)
    assert sum(done) == 4 and min(done) > 0


@pytest.mark.parametrize("names", ["experts", "tables"])
def test_one_by_one_where_gradients_of_sequences_cannot_be_told_apart(names, tmp_path, texts, rows):
    path = save_family("Qwen3-MoE", tmp_path) if names == "experts" else save_tiny("llama", tmp_path)
    model = load(find_model(path), device="cpu")
    chosen = in_blocks(model) if names == "experts" else model.anatomy.matrices
    expected = measure_curvature(model, chosen, texts, MeasureOptions())
    rows.clear()
    result = measure_curvature(model, chosen, texts, MeasureOptions(), most_tokens=100_000)
    assert set(rows) == {1}
    for name, sums in expected.by_tensor.items():
        assert torch.equal(result.by_tensor[name], sums)


def test_one_by_one_where_a_layer_reads_other_rows_than_those_of_the_batch(tmp_path, texts, rows):
    model = load(find_model(save_tiny("llama", tmp_path)), device="cpu")
    part = model.module.model.layers[0].mlp
    plain = part.forward
    part.forward = lambda hidden: plain(hidden.transpose(0, 1)).transpose(0, 1)
    expected = measure_curvature(model, in_blocks(model), texts, MeasureOptions())
    rows.clear()
    result = measure_curvature(model, in_blocks(model), texts, MeasureOptions(), most_tokens=250)
    # It is seen in the first batch, and then remembered.
    assert rows[0] > 1 and set(rows[1:]) == {1}
    assert_same(result, expected)


def test_a_layer_that_is_called_twice_has_the_sum_of_both_gradients(tmp_path, texts):
    model = load(find_model(save_tiny("llama", tmp_path)), device="cpu")
    first, second = model.module.model.layers
    second.mlp = first.mlp
    names = [name for name in in_blocks(model) if "layers.0.mlp" in name]
    expected = measure_curvature(model, names, texts, MeasureOptions())
    result = measure_curvature(model, names, texts, MeasureOptions(), most_tokens=100_000)
    assert_same(result, expected)


def test_batches_on_an_accelerator_fit_beside_its_weights():
    def tokens(blocks, vocabulary=32_000, device="cuda"):
        return gradient_tokens(shape_of(blocks, vocabulary), 12, torch.device(device), number_bytes=2)

    assert tokens(40, device="cpu") == 1
    assert tokens(4) == MOST_TOKENS
    # A passage of usual length is about as long as this; several of them fit.
    assert 5 * 117 < tokens(40) < MOST_TOKENS
    # As elsewhere, logits of one batch take two gigabytes at most.
    assert tokens(4, vocabulary=2**20) == 512


def test_one_sequence_at_a_time_on_a_cpu_and_several_elsewhere(tmp_path):
    folder = find_model(save_tiny("llama", tmp_path))
    assert usual_tokens(load(folder, device="cpu"), 2) == 1
    # Without weights, it is on the meta device.
    assert usual_tokens(skeleton(folder), 2) == MOST_TOKENS


def shape_of(blocks, vocabulary):
    """Like Llama 2 with 13B."""
    width, widest = 5120, 13824
    matrices = ((width, width),) * 4 + ((widest, width),) * 2 + ((width, widest),)
    inputs, parameters = (width, width, width, widest), 2 * vocabulary * width
    return ModelShape(
        kind="causal", matrices=(matrices,) * blocks, inputs=(inputs,) * blocks, shares=((1.0,) * 7,) * blocks,
        input_shares=((1.0,) * 4,) * blocks, attention=width, width=width, vocabulary=vocabulary,
        parameters=parameters + blocks * sum(o * i for o, i in matrices),
    )  # fmt: skip


def test_the_model_is_afterwards_what_it_was(tmp_path, texts):
    model = load(find_model(save_tiny("llama", tmp_path / "model")), device="cpu")
    before = {name: (p.detach().clone(), p.requires_grad) for name, p in model.module.named_parameters()}
    measure_curvature(model, model.anatomy.matrices, texts, MeasureOptions())
    for name, parameter in model.module.named_parameters():
        assert torch.equal(parameter, before[name][0])
        assert (parameter.requires_grad, parameter.grad) == (before[name][1], None)


def test_small_errors_cost_what_it_says(tmp_path):
    """On average over random errors: a model that was trained, at errors so small that the second order is all there is."""
    model = load(find_model("reference"), device="cpu")
    name = "model.layers.3.mlp.up_proj.weight"
    matrix = model.anatomy.matrices[name]
    texts = laaciq.read_texts().select(["eng"]).at(range(24))
    result = measure_curvature(model, {name: matrix}, texts, MeasureOptions())
    passages = prepare_all(model, texts["eng"])
    random = torch.Generator().manual_seed(0)
    original = matrix.detach().clone()
    squares, tokens = 0.0, 0
    for passage in passages:
        for sequence in passage.sequences:
            with torch.no_grad():
                error = 1e-4 * torch.randn(matrix.shape, generator=random)
                matrix.copy_(original + error)
                up = target_losses(model, [sequence]).double().sum()
                matrix.copy_(original - error)
                down = target_losses(model, [sequence]).double().sum()
                matrix.copy_(original)
            # (∇·Δw)², by central differences.
            squares += float((up - down) / 2) ** 2
            tokens += len(sequence.targets)
    predicted = result.losses(name, torch.full(matrix.shape, 1e-8))[0]
    # 24 squares of Gaussian values: their mean has a standard error of 29 %.
    assert squares / (2 * tokens) == pytest.approx(predicted, rel=0.9)
