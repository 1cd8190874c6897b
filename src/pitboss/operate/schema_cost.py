"""How often a JSON Schema can check one and the same value.

A schema of a few lines can check one value more often than there is time: it refers twice to a part that refers twice
to another part, and so on. A type with such a schema would stop the server with its first task.
"""

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any
from urllib.parse import unquote

from pitboss.model.canonical import MAX_DEPTH
from pitboss.model.errors import InvalidInput

MOST_CHECKS = 500
_MOST_STEPS = 50_000
_LISTS = ("allOf", "anyOf", "oneOf")
_SAME_VALUE = ("not", "if", "then", "else")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
# Of these, at most one is for a given part of the value.
_EITHER = ("properties", "prefixItems", "items")
_EACH = ("additionalProperties", "unevaluatedProperties", "propertyNames", "additionalItems", "unevaluatedItems")
Schema = Mapping[str, Any]


def refuse_costly(schema: Schema) -> None:
    """`InvalidInput` if some value could be checked more than `MOST_CHECKS` times, or if that cannot be known."""
    try:
        if _Cost(schema).most() <= MOST_CHECKS:
            return
    except RecursionError:
        pass
    raise InvalidInput(
        "Invalid JSON schema format",
        why=f"it could check one value more than {MOST_CHECKS} times: its parts refer to each other too often",
        fix="refer to a part once for each value, and use fewer alternatives",
    )


class _Cost:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._anchors: dict[str, Schema] = {}
        self._known: dict[tuple[int, int], int] = {}
        self._read_names(root, top=True)

    def most(self) -> int:
        """The most checks of one value, however deep in the params it is."""
        found = (self._checks(self._root, depth) for depth in range(MAX_DEPTH + 1))
        return max(takewhile(bool, found))

    def _checks(self, schema: Any, depth: int) -> int:
        """How often a value `depth` levels below the one that this schema checks is checked with it."""
        if not isinstance(schema, dict):
            return 0
        key = (id(schema), depth)
        known = self._known.get(key)
        if known is not None:
            return known
        if len(self._known) > _MOST_STEPS:
            return MOST_CHECKS + 1
        # A part that is met again for the same value is not checked again.
        self._known[key] = 0
        total = sum(self._checks(one, depth) for one in self._of_same_value(schema))
        total += 1 if depth == 0 else self._below(schema, depth - 1)
        self._known[key] = min(total, MOST_CHECKS + 1)
        return self._known[key]

    def _below(self, schema: Schema, depth: int) -> int:
        total = sum(self._checks(schema.get(word), depth) for word in (*_EACH, "contains"))
        total += sum(self._checks(one, depth) for one in _values(schema.get("patternProperties")))
        for word in _EITHER:
            found = schema.get(word)
            either = [found] if word == "items" and isinstance(found, dict) else _values(found)
            total += max((self._checks(one, depth) for one in either), default=0)
        return total

    def _of_same_value(self, schema: Schema) -> Iterator[Any]:
        for word in _LISTS:
            yield from _values(schema.get(word))
        for word in ("dependentSchemas", "dependencies"):
            yield from _values(schema.get(word))
        yield from (schema[word] for word in _SAME_VALUE if word in schema)
        yield from (self._target(schema[word]) for word in _REFERENCES if isinstance(schema.get(word), str))

    def _target(self, reference: str) -> Any:
        if not reference.startswith("#"):
            raise _foreign(reference)
        pointer = unquote(reference[1:])
        found: Any = self._root if not pointer or pointer.startswith("/") else self._anchors.get(pointer)
        for step in pointer.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list):
                found = found[int(step)] if step.isdecimal() and int(step) < len(found) else None
            else:
                found = found.get(step) if isinstance(found, dict) else None
        if found is None:
            raise _foreign(reference)
        return found

    def _read_names(self, part: Any, *, top: bool = False) -> None:
        for word in _ANCHORS:
            if isinstance(part, dict) and isinstance(part.get(word), str):
                self._anchors[part[word]] = part
        if isinstance(part, dict) and not top and isinstance(part.get("$id"), str):
            raise _foreign(part["$id"])
        for inner in _values(part):
            self._read_names(inner)


def _values(found: Any) -> list[Any]:
    if isinstance(found, dict):
        return list(found.values())
    return found if isinstance(found, list) else []


def _foreign(name: str) -> InvalidInput:
    return InvalidInput(
        "Invalid JSON schema format",
        why=f"it has no part {name:.100}, and cannot refer to other documents",
        fix='refer to its own parts: "#/$defs/…"',
    )
