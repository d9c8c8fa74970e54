import weakref

import torch

from laaciq.engine.pinned_memory import pinned_copies


def test_tensors_share_buffers_that_waste_little():
    sizes = []

    def allocate(size):
        sizes.append(size)
        return torch.empty(size, dtype=torch.uint8)

    # As torch pins them one by one, each would take up to twice its size.
    tensors = [torch.randn(1000, 700).bfloat16(), torch.arange(77, dtype=torch.uint8), torch.randn(()), torch.zeros(0)]
    tensors += [torch.randn(300, 700) for _ in range(3)]
    copies = list(pinned_copies(tensors, allocate))
    assert all(
        torch.equal(copied, tensor) and copied.dtype == tensor.dtype
        for copied, tensor in zip(copies, tensors, strict=True)
    )
    assert len(sizes) == 1
    assert sum(sizes) < sum(tensor.nbytes for tensor in tensors) + 256 * len(tensors)
    assert all(copied.data_ptr() % 4 == 0 for copied in copies)


def test_a_tensor_larger_than_a_buffer_has_one_of_its_own(monkeypatch):
    monkeypatch.setattr("laaciq.engine.pinned_memory._BUFFER_BYTES", 1024)
    sizes = []
    tensors = [torch.ones(100), torch.ones(1000), torch.ones(100), torch.ones(100)]
    made = pinned_copies(tensors, lambda size: sizes.append(size) or torch.empty(size, dtype=torch.uint8))
    assert [copied.sum() for copied in made] == [100, 1000, 100, 100]
    assert sizes == [1024, 4096, 1024]


def test_what_was_copied_can_go():
    parameters = [torch.nn.Parameter(torch.randn(8)) for _ in range(3)]
    before = [parameter.detach().clone() for parameter in parameters]
    sources = [weakref.ref(parameter.untyped_storage()) for parameter in parameters]
    copies = pinned_copies(parameters, lambda size: torch.empty(size, dtype=torch.uint8))
    for place, copied in enumerate(copies):
        assert not copied.requires_grad
        parameters[place].data = copied
        assert torch.equal(parameters[place], before[place])
        assert [source() is None for source in sources] == [number <= place for number in range(3)]
