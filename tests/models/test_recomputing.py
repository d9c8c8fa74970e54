import pytest
import torch

from laaciq.models.recomputing import recorded_first, recorded_last

WAYS = [recorded_first, recorded_last]


class Counted(torch.nn.Linear):
    runs = 0

    def forward(self, hidden, *, mask=None, beside=None):
        self.runs += 1
        hidden = hidden if beside is None else hidden + beside["encoder"]
        return torch.tanh(super().forward(hidden)) * mask, None


def gradients(way, entering, beside=None):
    """Of the weights and of everything that enters, the number of runs, and what was returned beside the hidden states."""
    torch.manual_seed(0)
    block, mask = Counted(8, 8), torch.rand(8)
    tensors = [
        t.detach().clone().requires_grad_(t.requires_grad) for t in (entering, *([] if beside is None else [beside]))
    ]
    options = {"mask": mask} | ({} if beside is None else {"beside": {"encoder": tensors[1]}})
    returned, other = block(tensors[0], **options) if way is None else way(block, (tensors[0],), options)
    returned.square().sum().backward()
    return [block.weight.grad, block.bias.grad, *(t.grad for t in tensors)], block.runs, other


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("hidden", "beside"), [(True, None), (False, None), (True, True), (False, True)])
def test_gradients_are_those_of_a_plain_run(way, hidden, beside):
    entering = torch.randn(3, 8).requires_grad_(hidden)
    encoder = None if beside is None else torch.randn(3, 8, requires_grad=beside)
    plain, once, _ = gradients(None, entering, encoder)
    recomputed, twice, other = gradients(way, entering, encoder)
    for expected, found in zip(plain, recomputed, strict=True):
        assert (expected is None and found is None) or torch.equal(expected, found)
    assert (once, twice, other) == (1, 2, None)


def test_nothing_inside_is_kept_for_the_backward_pass():
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.shape) or t, lambda t: t):
        entering = torch.randn(3, 8, requires_grad=True)
        recorded_last(Counted(8, 8), (entering,), {"mask": torch.ones(8)})
    assert kept == [entering.shape]


def test_a_block_without_anything_to_learn_passes_gradients_on():
    entering = torch.randn(3, requires_grad=True)
    returned = recorded_last(lambda hidden: hidden * 2, (entering,), {})
    returned.sum().backward()
    assert torch.equal(entering.grad, torch.full((3,), 2.0))


def test_outputs_that_need_no_gradient_are_no_error():
    returned = recorded_last(lambda hidden: (hidden.detach(), 3), (torch.ones(3, requires_grad=True),), {})
    assert returned[1] == 3
    returned[0].sum().backward()
