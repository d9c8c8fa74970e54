"""vLLM's rules for pack-quantized layers, checked on an export. Only running it shows whether it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from laaciq.exporting.carrying import Layout
from laaciq.exporting.results import Rule
from laaciq.planning.tensor_groups import VLLM_GROUPS, fused_name

_BITS = (4, 8)


def check_rules(layouts: Mapping[str, Layout], left: Iterable[str]) -> list[Rule]:
    """Every rule with the layers that break it; `left` are the linear layers that stay in 16 bits."""

    def breaking(rule: Callable[[Layout], bool]) -> list[str]:
        return [layer for layer, layout in layouts.items() if not rule(layout)]

    sizes = ", ".join(map(str, VLLM_GROUPS))
    return [
        Rule(rule="4 or 8 bits", broken_by=breaking(lambda layout: layout.bits in _BITS)),
        Rule(
            rule=f"groups of {sizes} or whole rows",
            broken_by=breaking(lambda layout: layout.group_size is None or layout.group_size in VLLM_GROUPS),
        ),
        Rule(rule="no zero points in 8 bits", broken_by=breaking(lambda layout: layout.symmetric or layout.bits != 8)),
        Rule(rule="layers that it fuses stored alike (q, k, v; gate, up; experts)", broken_by=_unlike(layouts, left)),
    ]


def _unlike(layouts: Mapping[str, Layout], left: Iterable[str]) -> list[str]:
    fused: dict[str, dict[str, Layout | None]] = {}
    for layer, layout in [*layouts.items(), *((layer, None) for layer in left)]:
        fused.setdefault(fused_name(layer), {})[layer] = layout
    return [layer for members in fused.values() if len(set(members.values())) > 1 for layer in members]


def rules_sentence(rules: list[Rule]) -> str:
    broken = [f"{rule.rule} (broken by {_some(rule.broken_by)})" for rule in rules if rule.broken_by]
    if broken:
        return f"Not all of vLLM's rules are met: {'; '.join(broken)}."
    return f"vLLM's rules are met: {'; '.join(rule.rule for rule in rules)}. vLLM itself was not run."


def _some(layers: list[str]) -> str:
    return layers[0] + (f" and {len(layers) - 1} more" if len(layers) > 1 else "")
