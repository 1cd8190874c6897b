"""A function's parameters as a model: checked before they are stored, and made again when the handler runs.

The only client module that loads pydantic; declaring handlers waits for the first use.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import pydantic

from pitboss.client.context import Context
from pitboss.client.state import Wanted
from pitboss.model.canonical import Json, to_json
from pitboss.model.errors import InvalidInput

MAX_PARAMS_BYTES = 262_144
_SHOWN_FAULTS = 5
_EMPTY = inspect.Parameter.empty


class Params:
    """How one function is called. `injected` names the parameters that the worker fills in itself."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        self._signature = inspect.signature(function)
        hints = _hints(function)
        self.injected: dict[str, Any] = {
            key: parameter.default if isinstance(parameter.default, Wanted) else Context
            for key, parameter in self._signature.parameters.items()
            if hints.get(key) is Context or isinstance(parameter.default, Wanted)
        }
        self._model = _model(name, self._signature, hints, self.injected)
        self._returns = hints.get("return", Any)
        self._adapter: pydantic.TypeAdapter[Any] | None = None

    def schema(self) -> Json:
        """The JSON Schema of the parameters, for those who enqueue by name."""
        return to_json(self._model.model_json_schema())

    def pack(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Json:
        """Canonical JSON of a call's arguments, or `InvalidInput` that names the parameter."""
        try:
            bound = self._signature.bind_partial(*args, **kwargs).arguments
        except TypeError as error:
            raise self._refused(str(error)) from error
        named = {key: value for key, value in bound.items() if key not in self.injected}
        extra = named.pop(self._extra, {}) if self._extra else {}
        return self.check({**named, **extra})

    def check(self, named: Mapping[str, Any]) -> Json:
        """Canonical JSON of parameters given by name."""
        try:
            values = self._model.model_validate(named).model_dump(mode="json", exclude_unset=True)
        except pydantic.ValidationError as error:
            raise self._refused(_told(error)) from error
        except (ValueError, TypeError) as error:
            raise self._refused(str(error)) from error
        return to_json(values, what=f"params of {self._name}", max_bytes=MAX_PARAMS_BYTES)

    def unpack(self, params: Json) -> dict[str, Any]:
        """The arguments as the function expects them, types and defaults included."""
        try:
            model = self._model.model_validate_json(params)
        except pydantic.ValidationError as error:
            raise self._refused(_told(error)) from error
        return {key: getattr(model, key) for key in model.model_fields_set}

    def pack_result(self, value: object) -> Json:
        return to_json(_plain(value), what=f"result of {self._name}")

    def unpack_result(self, text: Json) -> Any:
        if self._adapter is None:
            self._adapter = pydantic.TypeAdapter(self._returns)
        return self._adapter.validate_json(text)

    @property
    def _extra(self) -> str | None:
        for key, parameter in self._signature.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                return key
        return None

    def _refused(self, why: str) -> InvalidInput:
        shown = [str(one) for key, one in self._signature.parameters.items() if key not in self.injected]
        return InvalidInput(
            f'the arguments do not fit task "{self._name}"',
            why=why,
            fix=f"call it as {self._name}({', '.join(shown)}); nothing was enqueued",
        )


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise InvalidInput(
            f'the annotations of "{getattr(function, "__qualname__", function)}" cannot be read',
            why=str(error),
            fix="import the names that the annotations use at run time, not only under TYPE_CHECKING",
        ) from error


def _model(
    name: str, signature: inspect.Signature, hints: Mapping[str, Any], injected: Mapping[str, Any]
) -> type[pydantic.BaseModel]:
    fields: dict[str, Any] = {}
    extra: Any = "forbid"
    for key, parameter in signature.parameters.items():
        if key in injected:
            continue
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
            raise InvalidInput(
                f'task "{name}" cannot take {parameter}',
                why="arguments are stored by name",
                fix="give every parameter a name that callers can use, or take a list",
            )
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            extra = "allow"
            continue
        fields[key] = (hints.get(key, Any), ... if parameter.default is _EMPTY else parameter.default)
    config = pydantic.ConfigDict(
        extra=extra, arbitrary_types_allowed=False, protected_namespaces=(), ser_json_inf_nan="constants"
    )
    try:
        return pydantic.create_model(name, __config__=config, **fields)
    except (pydantic.errors.PydanticUserError, NameError) as error:
        raise InvalidInput(
            f'the parameters of task "{name}" cannot be stored as JSON',
            why=str(error).partition("\n")[0],
            fix="use JSON types, dataclasses, pydantic models, datetimes, UUIDs or enums",
        ) from error


def _told(error: pydantic.ValidationError) -> str:
    parts = [
        f"{'.'.join(str(step) for step in one['loc']) or 'arguments'}: {one['msg']}"
        for one in error.errors(include_url=False, include_context=False)
    ]
    more = len(parts) - _SHOWN_FAULTS
    return "; ".join(parts[:_SHOWN_FAULTS]) + (f"; and {more} more" if more > 0 else "")


def _plain(value: object) -> object:
    """Pydantic models inside a result as plain data; everything else goes to the canonical encoder as it is."""
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
