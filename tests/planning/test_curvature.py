from dataclasses import replace

import pytest
import torch

import laaciq
from laaciq.models import find_model, load
from laaciq.options import MeasureOptions
from laaciq.planning.curvature import measure_curvature
from laaciq.scoring.likelihood import target_losses
from laaciq.scoring.sequences import prepare_all
from tests.tiny import ARCHITECTURES, save_tiny

FEW = ["eng", "swa"]


@pytest.fixture(scope="module")
def texts():
    return laaciq.read_texts().select(FEW).spread(2)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_is_the_mean_squared_gradient_of_whole_passages(architecture, tmp_path, texts):
    model = load(find_model(save_tiny(architecture, tmp_path / "model")), device="cpu")
    name, matrix = next(iter(model.anatomy.matrices.items()))
    # A masked model reads a passage many times, so passages are short here.
    short = replace(
        texts,
        by_language={code: replace(p, texts=tuple(t[:60] for t in p.texts)) for code, p in texts.by_language.items()},
    )
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
