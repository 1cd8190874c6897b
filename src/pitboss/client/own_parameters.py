"""The parameters of a function that callers fill in, read without loading pydantic: for checks at declaration."""

import inspect
from collections.abc import Callable
from typing import Any

from pitboss.client.context import Context
from pitboss.client.lease import UnheldLease
from pitboss.client.state import StatePlaceholder
from pitboss.model.errors import InvalidInput

_INJECTED = (StatePlaceholder, UnheldLease, Context)
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def own_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Without those that the worker fills in: the context, a lease, worker states."""
    return [
        one
        for one in inspect.signature(function).parameters.values()
        if not isinstance(one.default, _INJECTED) and not _is_context(one.annotation, function)
    ]


def required_parameters(function: Callable[..., Any]) -> set[str]:
    """The names of those that have no default."""
    return {one.name for one in own_parameters(function) if one.default is one.empty and one.kind not in _VARIABLE}


def single_parameter(name: str, function: Callable[..., Any], what: str, usual: str) -> str:
    """The one parameter that gets the data. A wrapper that only has *args and **kwargs passes it on as `usual`."""
    own = own_parameters(function)
    if own and all(one.kind in _VARIABLE for one in own) and own[-1].kind is inspect.Parameter.VAR_KEYWORD:
        return usual
    if len(own) != 1 or own[0].kind in (*_VARIABLE, inspect.Parameter.POSITIONAL_ONLY):
        shown = ", ".join(str(one) for one in own) or "none"
        raise InvalidInput(
            f'"{name}" cannot get {what}',
            why=f"it goes into the only parameter of the function; its parameters are: {shown}",
            fix=f"write it as def {name}({usual}); a context, a lease and worker states may stand beside it",
        )
    return own[0].name


def _is_context(annotation: Any, function: Callable[..., Any]) -> bool:
    if isinstance(annotation, str):
        first, *rest = annotation.split(".")
        annotation = getattr(inspect.unwrap(function), "__globals__", {}).get(first)
        for name in rest:
            annotation = getattr(annotation, name, None)
    return annotation is Context
