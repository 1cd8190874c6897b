"""What a handler's tasks want of their resource: a template that each task's parameters fill in."""

from collections.abc import Mapping
from string import Formatter
from typing import Any

import msgspec

from pitboss.model.canonical import Json, from_json, to_json
from pitboss.model.errors import InvalidInput
from pitboss.model.resource import Want, checked_labels

# The handler's JSON Schema carries the template under this key, so that enqueueing by name makes the same wants.
SCHEMA_KEY = "x-pitboss-want"
_LONGEST_KEY = 512


class WantTemplate(msgspec.Struct, frozen=True, omit_defaults=True):
    """Labels with parameters in braces, the parameter whose value is the sticky key, and the parameters' defaults."""

    labels: tuple[str, ...] = ()
    sticky: str | None = None
    defaults: dict[str, Any] = {}

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters that it names."""
        named = [field for label in self.labels for field in _fields(label)]
        return tuple(dict.fromkeys([*named, *([self.sticky] if self.sticky else [])]))

    def want(self, params: Json) -> Want | None:
        """The want of a task with these parameters; None if any member will do."""
        if not self.labels and self.sticky is None:
            return None
        values: dict[str, Any] = {**self.defaults, **from_json(params)}
        labels = checked_labels(tuple(_filled(label, values) for label in self.labels))
        key = None if self.sticky is None else _key(values.get(self.sticky), self.sticky)
        return Want(labels, key) if labels or key is not None else None


def with_template(schema: Json, template: WantTemplate) -> Json:
    """The schema, carrying the template."""
    if not template.labels and template.sticky is None:
        return schema
    return to_json({**from_json(schema), SCHEMA_KEY: msgspec.to_builtins(template)})


def template_in_schema(schema: Json) -> WantTemplate | None:
    """The template that a schema carries."""
    carried = from_json(schema).get(SCHEMA_KEY)
    return None if carried is None else msgspec.convert(carried, WantTemplate)


def checked_template(template: WantTemplate, task: str, parameters: Mapping[str, Any]) -> WantTemplate:
    """The template itself, if the task has the parameters that it names."""
    unknown = [name for name in template.parameters if name not in parameters]
    if unknown:
        known = ", ".join(parameters) or "none"
        raise InvalidInput(
            f'the lease of task "{task}" names {", ".join(unknown)}',
            why=f"sticky= and labels in braces name parameters of the function, which are: {known}",
            fix="name one of these, or leave it out",
        )
    if not template.parameters:
        checked_labels(template.labels)
    return template


def _fields(label: str) -> list[str]:
    try:
        parts = [field for _, field, _, _ in Formatter().parse(label) if field is not None]
    except ValueError:
        parts = [""]
    if any(not field.isidentifier() for field in parts):
        raise InvalidInput(
            f"{label!r:.80} is not a label with parameters",
            why="braces hold the name of a parameter and nothing else",
            fix='write it like "group-{worker}"',
        )
    return parts


def _filled(label: str, values: Mapping[str, Any]) -> str:
    plain = {name: value if isinstance(value, str) else to_json(value) for name, value in values.items()}
    try:
        return label.format_map(plain)
    except KeyError as error:
        raise InvalidInput(
            f'the label "{label}" needs a parameter that the params do not have: {error.args[0]}',
            why="the task's labels are made from its parameters",
            fix="add it to the params",
        ) from None


def _key(value: Any, parameter: str) -> str | None:
    if value is None:
        return None
    key = value if isinstance(value, str) else to_json(value)
    if not 0 < len(key) <= _LONGEST_KEY:
        raise InvalidInput(
            f'the parameter "{parameter}" cannot be a sticky key',
            why=f"a sticky key has 1 to {_LONGEST_KEY} characters; this one has {len(key)}",
            fix="use a shorter value, such as an id",
        )
    return key
