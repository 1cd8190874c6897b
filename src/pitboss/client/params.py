"""A function's parameters as a model: checked before they are stored, and made again when the handler runs.

The only client module that loads pydantic; declaring handlers waits for the first use.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NotRequired, get_type_hints

import pydantic
from typing_extensions import TypedDict

from pitboss.client.context import Context
from pitboss.client.lease import UnheldLease
from pitboss.client.state import StatePlaceholder
from pitboss.model.canonical import MAX_PARAMS_BYTES, Json, from_json, to_json
from pitboss.model.errors import InvalidInput

_SHOWN_FAULTS = 5
_EMPTY = inspect.Parameter.empty
_PLACEHOLDERS = (StatePlaceholder, UnheldLease)
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_BY_NAME_ONLY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)


class Params:
    """How one function is called. `injected` names the parameters that the worker fills in itself."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        self._what = f"params of {name}"
        self._signature = inspect.signature(function)
        hints = _hints(function)
        self.injected: dict[str, Any] = {
            key: parameter.default if isinstance(parameter.default, _PLACEHOLDERS) else Context
            for key, parameter in self._signature.parameters.items()
            if hints.get(key) is Context or isinstance(parameter.default, _PLACEHOLDERS)
        }
        self._order = [
            key
            for key, parameter in self._signature.parameters.items()
            if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        ]
        self._adapter = _adapter(name, self._signature, hints, self.injected)
        validator = self._adapter.validator
        self._validate, self._validate_json = validator.validate_python, validator.validate_json
        self._returns = hints.get("return", Any)
        self._result_adapter: pydantic.TypeAdapter[Any] | None = None

    def schema(self) -> Json:
        """The JSON Schema of the parameters, for enqueueing by name."""
        return to_json(self._adapter.json_schema())

    def pack(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Json:
        """Canonical JSON of a call's arguments, or `InvalidInput` that names the parameter."""
        named = dict(zip(self._order, args, strict=False))
        if len(args) > len(self._order) or not named.keys().isdisjoint(kwargs):
            self._refuse_call(args, kwargs)
        named.update(kwargs)
        for key in self.injected:
            named.pop(key, None)
        return self.check(named)

    def check(self, named: Mapping[str, Any]) -> Json:
        """Canonical JSON of parameters given by name."""
        try:
            values = self._validate(named)
        except pydantic.ValidationError as error:
            raise self._refused(_faults(error)) from error
        return to_json(values, what=self._what, max_bytes=MAX_PARAMS_BYTES, plain=plain_value)

    def unpack(self, params: Json) -> dict[str, Any]:
        """The arguments in the types that the function declares."""
        try:
            values: dict[str, Any] = self._validate_json(params)
        except pydantic.ValidationError as error:
            raise InvalidInput(
                f'the stored arguments do not fit task "{self._name}": {_faults(error)}',
                why="its parameters have changed since it was enqueued",
                fix=f"let {self._call} take them, then pitboss dead retry",
            ) from error
        return values

    def pack_result(self, value: object) -> Json:
        if value is None:
            return "null"
        return to_json(value, what=f"result of {self._name}", plain=plain_value)

    def unpack_result(self, text: Json) -> Any:
        if self._result_adapter is None:
            self._result_adapter = pydantic.TypeAdapter(self._returns)
        return self._result_adapter.validate_json(text)

    def _refuse_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        try:
            self._signature.bind_partial(*args, **kwargs)
        except TypeError as error:
            raise self._refused(str(error)) from error
        # The function takes *args and **kwargs: only these have names.
        raise self._refused("arguments are stored by name, and it does not name its parameters")

    def _refused(self, why: str) -> InvalidInput:
        return InvalidInput(
            f'the arguments do not fit task "{self._name}"',
            why=why,
            fix=f"call it as {self._call}; nothing was enqueued",
        )

    @property
    def _call(self) -> str:
        """The function with its parameters, as a person calls it."""
        shown = [str(one) for key, one in self._signature.parameters.items() if key not in self.injected]
        return f"{self._name}({', '.join(shown)})"


class EventData:
    """The type that the data of one event must have."""

    def __init__(self, name: str, kind: Any) -> None:
        self._name = name
        try:
            self._adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(kind)
        except (pydantic.errors.PydanticUserError, NameError) as error:
            raise InvalidInput(
                f'the data of the event "{name}" cannot be stored as JSON',
                why=str(error).partition("\n")[0],
                fix="use JSON types, dataclasses, pydantic models, datetimes, UUIDs or enums",
            ) from error

    def schema(self) -> Json:
        return to_json(self._adapter.json_schema())

    def plain(self, data: object) -> Any:
        """The data as JSON types, or `InvalidInput` that names what does not fit."""
        try:
            value = self._adapter.validate_python(data)
        except pydantic.ValidationError as error:
            raise InvalidInput(
                f'the data does not fit the event "{self._name}"',
                why=_faults(error, "data"),
                fix="pass what the event's type asks for; nothing was published",
            ) from error
        return plain_data(self._name, value)


def plain_data(event: str, data: object) -> Any:
    """The data of an event as JSON types."""
    return from_json(to_json(data, what=f"data of {event}", max_bytes=MAX_PARAMS_BYTES, plain=plain_value))


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise InvalidInput(
            f'the annotations of "{getattr(function, "__qualname__", function)}" cannot be read',
            why=str(error),
            fix="import the names that the annotations use at run time, not only under TYPE_CHECKING",
        ) from error


def _adapter(
    name: str, signature: inspect.Signature, hints: Mapping[str, Any], injected: Mapping[str, Any]
) -> pydantic.TypeAdapter[Any]:
    fields: dict[str, Any] = {}
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    open_ended = inspect.Parameter.VAR_KEYWORD in kinds
    for key, parameter in signature.parameters.items():
        # A decorator's wrapper with *args and **kwargs gets all by name.
        if key in injected or (open_ended and parameter.kind in _VARIABLE):
            continue
        if parameter.kind in _BY_NAME_ONLY:
            raise InvalidInput(
                f'task "{name}" cannot take {parameter}',
                why="arguments are stored by name",
                fix="give every parameter a name that callers can use, or take a list",
            )
        kind = hints.get(key, Any)
        fields[key] = kind if parameter.default is _EMPTY else NotRequired[kind]
    # A typed dict, not a model: validation gives the arguments themselves, without an object in between.
    make: Any = TypedDict
    shape = make(name, fields)
    shape.__pydantic_config__ = pydantic.ConfigDict(extra="allow" if open_ended else "forbid", val_json_bytes="base64")
    try:
        return pydantic.TypeAdapter(shape)
    except (pydantic.errors.PydanticUserError, NameError) as error:
        raise InvalidInput(
            f'the parameters of task "{name}" cannot be stored as JSON',
            why=str(error).partition("\n")[0],
            fix="use JSON types, dataclasses, pydantic models, datetimes, UUIDs or enums",
        ) from error


def _faults(error: pydantic.ValidationError, whole: str = "arguments") -> str:
    parts = [
        f"{'.'.join(str(step) for step in one['loc']) or whole}: {one['msg']}"
        for one in error.errors(include_url=False, include_context=False)
    ]
    more = len(parts) - _SHOWN_FAULTS
    return "; ".join(parts[:_SHOWN_FAULTS]) + (f"; and {more} more" if more > 0 else "")


def plain_value(value: object) -> object:
    """A value that the canonical encoder does not know, as plain data that its own type accepts again."""
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json", by_alias=_reads_aliases(type(value)))
    raise TypeError(f"a {type(value).__name__} has no JSON form")


@lru_cache(maxsize=1024)
def _reads_aliases(model: type[pydantic.BaseModel]) -> bool:
    """Whether it is made from other names than those of its fields."""
    return any(field.validation_alias is not None for field in model.model_fields.values())
