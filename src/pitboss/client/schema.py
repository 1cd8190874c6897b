"""Checks parameters against a JSON Schema from the registry: for tasks that are enqueued by name alone."""

from collections.abc import Callable, Mapping
from typing import Any

import jsonschema_rs

from pitboss.client.params import MAX_PARAMS_BYTES
from pitboss.model.canonical import Json, from_json, to_json
from pitboss.model.errors import InvalidInput
from pitboss.model.queue import HandlerInfo


def compiled(schema: Mapping[str, Any]) -> Any:
    """A validator. It reads no other document (a schema may come from anyone who may register a task type), and its
    patterns take linear time. `ValueError` if the schema is not valid."""
    return jsonschema_rs.validator_for(
        dict(schema), retriever=_no_document, pattern_options=jsonschema_rs.RegexOptions()
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
        faults = [
            f"{'.'.join(str(step) for step in error.instance_path) or 'params'}: {error.message}"
            for error in validator.iter_errors(from_json(text))
        ]
        if faults:
            raise InvalidInput(
                f'the params do not fit task "{handler.name}"',
                why="; ".join(faults[:5]),
                fix="send what the handler's schema asks for; nothing was enqueued",
            )
        return text

    return check
