"""The rules of runtimes, checked on the layers of an export. Which rules there are stands in `laaciq.planning.runtimes`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from laaciq.errors import BadOption
from laaciq.exporting.results import Rule
from laaciq.options.values import ExportRuntime
from laaciq.planning.runtimes import RUNTIMES, RuntimeRules, StoredLayer, is_expert


def check_rules(
    runtime: RuntimeRules, export_format: str, layers: Mapping[str, StoredLayer], left: Sequence[str]
) -> list[Rule]:
    """Every rule with the layers that break it; `left` are the linear layers that stay in 16 bits."""
    rules = [
        Rule(rule=rule.words, broken_by=[name for name, layer in layers.items() if not rule.holds(layer)])
        for rule in runtime.rules_for(export_format)
    ]
    if export_format in runtime.no_mixtures:
        experts = [name for name in (*layers, *left) if is_expert(name)]
        rules.append(Rule(rule=f"no experts in {export_format}", broken_by=experts))
    if runtime.alike is not None:
        words = "layers that it fuses stored alike (q, k, v; gate, up; experts)"
        rules.append(Rule(rule=words, broken_by=_unlike(runtime, layers, left)))
    return rules


def _unlike(runtime: RuntimeRules, layers: Mapping[str, StoredLayer], left: Iterable[str]) -> list[str]:
    stored = {name: (layer.bits, layer.group_size, layer.symmetric) for name, layer in layers.items()}
    fused: dict[str, dict[str, tuple[int, int | None, bool] | None]] = {}
    for name in [*stored, *left]:
        fused.setdefault(runtime.group_name(name), {})[name] = stored.get(name)
    return [name for members in fused.values() if len(set(members.values())) > 1 for name in members]


def require_format(runtime: ExportRuntime, export_format: str) -> None:
    """An error unless the runtime reads the format."""
    rules = RUNTIMES[runtime]
    if export_format not in rules.reads:
        raise BadOption(f"{rules.name} does not read {export_format}: give --format {' or '.join(rules.reads)}")


def require_rules(runtime: ExportRuntime, rules: list[Rule]) -> None:
    """An error unless all rules are met."""
    if broken := _broken(rules):
        raise BadOption(
            f"{RUNTIMES[runtime].name} does not load this: {broken}; "
            f"plan it with --runtime {runtime}, or export it for another --runtime or to another --format"
        )


def rules_sentence(runtime: str, rules: list[Rule]) -> str:
    name = next(known.name for key, known in RUNTIMES.items() if key == runtime)
    if broken := _broken(rules):
        return f"{name} does not load this: {broken}."
    return f"The rules of {name} are met: {'; '.join(rule.rule for rule in rules)}."


def _broken(rules: list[Rule]) -> str:
    return "; ".join(f"{rule.rule} (broken by {_some(rule.broken_by)})" for rule in rules if rule.broken_by)


def _some(layers: list[str]) -> str:
    return layers[0] + (f" and {len(layers) - 1} more" if len(layers) > 1 else "")
