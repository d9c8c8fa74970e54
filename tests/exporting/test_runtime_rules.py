import pytest

from laaciq.errors import BadOption
from laaciq.exporting.runtime_rules import check_rules, require_format, require_rules, rules_sentence
from laaciq.planning.runtimes import RUNTIMES, StoredLayer

LAYERS = [f"layers.0.self_attn.{name}_proj" for name in "qkvo"]
SHAPE = (64, 256)


def layer(bits=4, group=64, symmetric=True, shape=SHAPE):
    return StoredLayer(shape, bits, group, symmetric)


def broken(layers, left=(), runtime="vllm", export_format="compressed-tensors"):
    rules = check_rules(RUNTIMES[runtime], export_format, layers, left)
    return [rule.rule for rule in rules if rule.broken_by]


@pytest.mark.parametrize(
    ("stored", "on_gpu", "on_cpu"),
    [
        (layer(), [], []),
        (layer(group=None), [], []),
        (layer(group=128, symmetric=False), [], []),
        (layer(8), [], ["4 bits"]),
        (layer(3), ["4 or 8 bits"], ["4 bits"]),
        (layer(group=16), ["groups of"], []),
        (layer(group=96), ["groups of"], ["groups of"]),
        (layer(8, symmetric=False), ["no zero points in 8 bits"], ["4 bits"]),
        (layer(shape=(40, 256)), [], ["outputs and inputs"]),
    ],
)
def test_rules_of_vllm(stored, on_gpu, on_cpu):
    for runtime, expected in (("vllm", on_gpu), ("vllm-cpu", on_cpu)):
        found = broken(dict.fromkeys(LAYERS, stored), runtime=runtime)
        assert len(found) == len(expected)
        assert all(rule.startswith(words) for rule, words in zip(found, expected, strict=True))


def test_gptq_has_no_zero_points_in_vllm():
    affine = dict.fromkeys(LAYERS, layer(symmetric=False))
    assert broken(affine, export_format="gptq") == ["no zero points in gptq"]
    assert broken(affine) == []


def test_fused_layers_are_stored_alike():
    good = dict.fromkeys(LAYERS, layer())
    # The output projection is fused with nothing.
    assert broken(good | {LAYERS[3]: layer(8)}) == []
    assert [rule.split()[0] for rule in broken(good | {LAYERS[1]: layer(8)})] == ["layers"]
    assert [rule.split()[0] for rule in broken(dict.fromkeys(LAYERS[1:], layer()), left=LAYERS[:1])] == ["layers"]
    # Outputs differ in number; that is no difference in storage.
    assert broken(good | {LAYERS[1]: layer(shape=(32, 256))}) == []


def test_sentences():
    rules = check_rules(RUNTIMES["vllm-cpu"], "compressed-tensors", {"layers.0.mlp.up_proj": layer(8)}, [])
    assert "4 bits (broken by layers.0.mlp.up_proj)" in rules_sentence("vllm-cpu", rules)
    with pytest.raises(
        BadOption, match=r"vLLM on a CPU does not load this: 4 bits \(broken by layers\.0\.mlp\.up_proj\)"
    ):
        require_rules("vllm-cpu", rules)
    require_rules("vllm-cpu", check_rules(RUNTIMES["vllm-cpu"], "gptq", {"layers.0.mlp.up_proj": layer()}, []))
    with pytest.raises(BadOption, match=r"llama\.cpp does not read gptq: give --format gguf"):
        require_format("llama.cpp", "gptq")
