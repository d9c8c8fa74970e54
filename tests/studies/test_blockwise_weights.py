import weakref

import pytest
import torch

from laaciq.studies.blockwise_weights import BlockwiseWeights


def test_one_block_at_a_time_is_computed_and_kept():
    alive, computed = [], []

    def compute(block):
        assert not any(reference() is not None for reference in alive)
        computed.append(block)
        values = {name: torch.full((2,), float(block)) for name in (f"{block}.norm", f"{block}.linear")}
        alive[:] = [weakref.ref(value) for value in values.values()]
        return values

    weights = BlockwiseWeights(
        {f"{block}.{part}": block for block in (0, 1, 3) for part in ("norm", "linear")}, compute
    )
    assert (len(weights), computed) == (6, [])
    assert [float(weights[name][0]) for name in weights] == [0, 0, 1, 1, 3, 3]
    assert computed == [0, 1, 3]
    assert float(weights["0.linear"][0]) == 0
    assert computed == [0, 1, 3, 0]
    assert weights.get("2.linear") is None
    with pytest.raises(KeyError):
        weights["2.linear"]
