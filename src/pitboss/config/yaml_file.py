"""Reads YAML so that a value means the same as in TOML.

PyYAML follows old rules: `no` is false, `1:30` is 90 and `010` is 8. Here they are text, as in YAML 1.2, and the check
of the setting refuses them. Keys are always text, and no key may appear twice.
"""

import re
from typing import Any

import yaml

from pitboss.model.errors import InvalidInput

_TABLES = ("pools", "queues", "defaults", "retention")
_TAG = "tag:yaml.org,2002:"
_RULES = (
    ("bool", r"true|false", "tf"),
    ("int", r"[-+]?(?:0|[1-9][0-9_]*)", "-+0123456789"),
    ("float", r"[-+]?(?:0|[1-9][0-9_]*)(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)", "-+0123456789"),
    ("null", r"~|null|", ["~", "n", ""]),
    ("merge", r"<<", "<"),
)


class _Loader(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if key.tag == f"{_TAG}merge":
                continue
            if not isinstance(key, yaml.ScalarNode) or key.value in seen:
                what = f'"{key.value}" appears twice' if isinstance(key, yaml.ScalarNode) else "a key is not text"
                raise yaml.MarkedYAMLError(problem=what, problem_mark=key.start_mark)
            seen.add(key.value)
            key.tag = f"{_TAG}str"
        return node


_Loader.yaml_implicit_resolvers = {}
for _kind, _form, _first in _RULES:
    _Loader.add_implicit_resolver(f"{_TAG}{_kind}", re.compile(rf"(?:{_form})\Z"), list(_first))


def tables(text: str) -> dict[str, Any]:
    """The settings of a YAML document."""
    try:
        found = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidInput("it is not YAML", why=_placed(error), fix="correct the file at that place") from error
    if found is not None and not isinstance(found, dict):
        raise InvalidInput(
            "it holds no settings",
            why=f"its outermost value is a {type(found).__name__}",
            fix='write keys and values, such as "workers: 2"',
        )
    return _without_nothing(found or {}, "")


def _placed(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"{error.problem} (at line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1})"
    return str(error)


def _without_nothing(values: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Refuses keys without a value, which TOML cannot have. A pool or queue without keys is an empty table."""
    found = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if value is None and not (name in _TABLES or prefix in ("pools.", "queues.")):
            raise InvalidInput(
                f"{name} has no value",
                why="there is nothing after the colon, or it is not indented",
                fix="give it a value, or remove the line",
            )
        found[key] = _without_nothing(value, f"{name}.") if isinstance(value, dict) else {} if value is None else value
    return found
