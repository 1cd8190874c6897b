"""Checks that a handler's fallback can take its params, once all handlers are declared."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pitboss.model.canonical import from_json
from pitboss.model.errors import InvalidInput
from pitboss.model.text import listed

if TYPE_CHECKING:
    from pitboss.client.handler import Handler


def check_fallbacks(handlers: Mapping[str, "Handler[Any, Any, Any]"]) -> None:
    """Refuse fallbacks among these handlers that would fail for their params. Others belong to another app."""
    for handler in handlers.values():
        fallback = handlers.get(handler.routes.fallback or "")
        if fallback is not None:
            _check(handler, fallback)


def refuse_itself(name: str, fallback: str | None) -> None:
    if name == fallback:
        raise InvalidInput(
            f'task "{name}" is its own fallback',
            why="a fallback runs when the task has failed for good; the same function would fail again",
            fix="name another handler, or allow more attempts with max_attempts=…",
        )


def _check(handler: "Handler[Any, Any, Any]", fallback: "Handler[Any, Any, Any]") -> None:
    given, taken = from_json(handler.params.schema()), from_json(fallback.params.schema())
    missing = sorted(set(taken.get("required", ())) - set(given.get("required", ())))
    unknown = sorted(given.get("properties", {}).keys() - taken.get("properties", {}).keys())
    strict = taken.get("additionalProperties") is False
    why = f"it needs {listed(missing)}, which a task may lack" if missing else ""
    if unknown and strict:
        why = f"it does not take {listed(unknown)}"
    if why:
        raise InvalidInput(
            f'"{fallback.name}" cannot be the fallback of "{handler.name}"',
            why=f"a fallback gets the params of the failed task, and {why}",
            fix=f"give it the parameters of {handler.name}, or **params",
        )
