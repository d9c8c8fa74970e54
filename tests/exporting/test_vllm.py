from laaciq.exporting.carrying import Layout
from laaciq.exporting.vllm import check_rules, rules_sentence

GOOD = Layout(4, 64, True)


def broken(layouts, left=()):
    return [rule.rule.split()[0] for rule in check_rules(layouts, left) if rule.broken_by]


def test_rules():
    layers = [f"layers.0.self_attn.{name}_proj" for name in "qkvo"]
    assert broken(dict.fromkeys(layers, GOOD)) == []
    assert broken(dict.fromkeys(layers, Layout(8, None, True))) == []
    assert broken(dict.fromkeys(layers, Layout(4, 128, False))) == []
    assert broken(dict.fromkeys(layers, Layout(3, 64, True))) == ["4"]
    assert broken(dict.fromkeys(layers, Layout(4, 16, True))) == ["groups"]
    assert broken(dict.fromkeys(layers, Layout(8, 64, False))) == ["no"]
    # The output projection is fused with nothing.
    assert broken(dict.fromkeys(layers, GOOD) | {layers[3]: Layout(8, 64, True)}) == []
    assert broken(dict.fromkeys(layers, GOOD) | {layers[1]: Layout(8, 64, True)}) == ["layers"]
    assert broken(dict.fromkeys(layers[1:], GOOD), left=layers[:1]) == ["layers"]


def test_sentence():
    rules = check_rules({"layers.0.mlp.up_proj": Layout(3, 64, True)}, [])
    assert "4 or 8 bits (broken by layers.0.mlp.up_proj)" in rules_sentence(rules)
    assert "was not run" in rules_sentence(check_rules({"layers.0.mlp.up_proj": GOOD}, []))
