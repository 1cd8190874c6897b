"""Checks parameters against a JSON Schema from the registry: for tasks that are enqueued by name alone."""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import jsonschema_rs

from pitboss.model.canonical import MAX_PARAMS_BYTES, Json, from_json, to_json
from pitboss.model.errors import InvalidInput
from pitboss.model.queue import HandlerInfo

# Params up to this length are shown in messages.
_SHOWN = 2_000
_FAULTS = 5


def compiled(schema: Mapping[str, Any], mask: str | None = None) -> Any:
    """A validator. It reads no other document (a schema may come from anyone who may register a task type), and its
    patterns take linear time. `mask` stands for the values in its messages. `ValueError` if the schema is not valid."""
    return jsonschema_rs.validator_for(
        dict(schema), retriever=_no_document, pattern_options=jsonschema_rs.RegexOptions(), mask=mask
    )


def _no_document(uri: str) -> Any:
    raise ValueError(f"a schema cannot refer to another document ({uri:.100})")


def checked(handler: HandlerInfo, params: Mapping[str, Any]) -> Json:
    """Canonical JSON of the parameters, or `InvalidInput` that names what does not fit the handler's schema."""
    return checker(handler)(params)


def checker(handler: HandlerInfo) -> Callable[[Mapping[str, Any]], Json]:
    """As `checked`, for many params: the schema is read once."""
    validator = compiled(from_json(handler.schema))

    def check(params: Mapping[str, Any]) -> Json:
        text = to_json(params, what=f"params of {handler.name}", max_bytes=MAX_PARAMS_BYTES)
        value = from_json(text)
        if not validator.is_valid(value):
            # Each fault has a copy of the value, and a schema can have thousands of faults.
            teller = validator if len(text) <= _SHOWN else compiled(from_json(handler.schema), mask="this value")
            raise InvalidInput(
                f'the params do not fit task "{handler.name}"',
                why="; ".join(_faults(teller, value)),
                fix="send what the handler's schema asks for; nothing was enqueued",
            )
        return text

    return check


def _faults(validator: Any, value: object) -> list[str]:
    return [
        f"{'.'.join(str(step) for step in error.instance_path) or 'params':.200}: {error.message:.300}"
        for error in islice(validator.iter_errors(value), _FAULTS)
    ]
