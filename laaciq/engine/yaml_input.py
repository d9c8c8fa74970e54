"""YAML that this program did not just write: one mapping of names to values. Aliases are refused, because a few lines can expand to
gigabytes.
"""

from __future__ import annotations

from typing import Any

import yaml

from laaciq.engine.input_files import Refusal, is_text

_DEEPEST = 20


class _Loader(yaml.SafeLoader):
    """Like yaml's loader, but refuses aliases, a key given twice, and deep nesting."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise _error("aliases are not allowed", self.peek_event())
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _error(f"nested deeper than {_DEEPEST} levels", self.peek_event())
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key in [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]:
            if key.value in seen:
                raise _error(f"{key.value!r} is given twice", key)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _error(problem: str, at: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=at.start_mark)


def parse_mapping(text: str, name: object, refusal: Refusal) -> dict[str, Any]:
    """The mapping in the text; empty if the text is empty."""
    try:
        content = _Loader(text).get_single_data()
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise refusal.of(f"{name}", f"is not valid YAML ({problem})") from None
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) and is_text(key) for key in content):
        raise refusal.of(f"{name}", "does not map names to values")
    return content
