"""Every weight is accounted for: quantized, a token matrix, or left alone for a reason that is known before anything starts."""

import pytest

import laaciq
from laaciq.engine.progress import Progress
from laaciq.errors import BadOption, LaaciqError
from laaciq.models import find_model, load
from laaciq.models.left_alone import LEFT_ALONE_LIMIT
from laaciq.quantization.checkpoint import read_plan
from tests.tiny import ARCHITECTURES, save_tiny

REASONS = {"norm", "bias", "embedding table", "linear layer outside the blocks"}
GRID = {"method": "rtn", "group_size": 16}


class Listening(Progress):
    def __init__(self):
        super().__init__()
        self.said = []

    def say(self, text):
        self.said.append(text)


def mt5(folder, buckets):
    """The first block of each side has a table of relative positions, which is not a linear layer: heads × buckets weights."""
    return save_tiny("mt5", folder, relative_attention_num_buckets=buckets)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_anatomy_adds_up_to_all_parameters(architecture, tmp_path):
    model = load(find_model(save_tiny(architecture, tmp_path)))
    anatomy = model.anatomy
    parts = {
        "quantized": {linear.name for linear in anatomy.linears},
        "tokens": {matrix.name for matrix in anatomy.token_matrices},
        "left alone": {part.name for part in anatomy.left_alone},
    }
    counts = {part.name: part.count for part in anatomy.tensors}
    assert sum(map(len, parts.values())) == len(set().union(*parts.values())) == len(counts)
    assert sum(counts.values()) == sum(p.numel() for p in model.module.parameters())
    assert {part.reason for part in anatomy.left_alone} <= REASONS
    # Of these architectures, only mT5 has weights in its blocks that are not in linear layers.
    assert bool(anatomy.left_in_blocks) == (architecture == "mt5")


def test_weights_left_alone_are_announced_and_counted_in_every_size(tmp_path):
    model, heard = mt5(tmp_path / "model", 32), Listening()
    laaciq.quantize(model, out=tmp_path / "q", progress=heard, **GRID)
    # 32 buckets of 4 heads on both sides.
    linears = sum(linear.matrix.numel() for linear in load(find_model(model)).anatomy.linears)
    left = 2 * 32 * 4
    assert f"{100 * left / (linears + left):.2g} % of the block weights stay in 16 bits" in heard.said[0]
    assert "(embedding table" in heard.said[0]
    # 4 bits and a scale of 16 bits for 16 weights.
    assert read_plan(tmp_path / "q").size.block_bits_per_weight == (5 * linears + 16 * left) / (linears + left)
    planned = laaciq.plan(model, budget=5.0, languages=["eng", "swa"], served_bound=100.0, progress=heard)
    assert planned.plan.size.block_bits_per_weight <= 5.0


def test_many_weights_left_alone_are_refused_unless_allowed(tmp_path):
    model, heard = mt5(tmp_path / "model", 2048), Listening()
    out = tmp_path / "q"
    with pytest.raises(LaaciqError, match=r"% of the block weights would stay in 16 bits.*give --allow-left-alone"):
        laaciq.quantize(model, out=out, progress=heard, **GRID)
    assert heard.said == []
    assert not out.exists()
    more = {"sweep": {"bits": (4,)}, "compare": {"methods": ["rtn"], "out": tmp_path / "c"}, "gateway": {}, "plan": {}}
    for verb, options in (more | {"sensitivity": {}, "mixture": {}, "run": {"out": tmp_path / "r"}}).items():
        with pytest.raises(LaaciqError, match="--allow-left-alone"):
            getattr(laaciq, verb)(model, languages=["eng"], served_bound=100.0, **options)
    laaciq.quantize(model, out=out, allow_left_alone=True, progress=heard, **GRID)
    anatomy = load(find_model(model)).anatomy
    assert 2 * 2048 * 4 / anatomy.block_weights > LEFT_ALONE_LIMIT
    assert "of the block weights stay in 16 bits" in heard.said[0]


def test_allowing_what_needs_no_permission_is_refused(tmp_path):
    model = save_tiny("llama", tmp_path / "model")
    with pytest.raises(BadOption, match="--allow-left-alone has no effect here: 0 % of the block weights"):
        laaciq.quantize(model, out=tmp_path / "q", allow_left_alone=True, **GRID)
