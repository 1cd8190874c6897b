"""Schemas that would check one value too often are refused; those that people write are not."""

import time
from typing import Any

import pytest

from pitboss.model.errors import InvalidInput
from pitboss.operate.schema_cost import MOST_CHECKS, refuse_costly

HASH = {"$ref": "#"}
TWICE = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/%24defs/d{n + 1}"}]} for n in range(40)}


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"type": "object"}, id="plain"),
        pytest.param({"properties": {"left": HASH, "right": HASH}}, id="tree"),
        pytest.param({"properties": {"next": {"anyOf": [{"type": "null"}, HASH]}}}, id="list"),
        pytest.param({"items": {"$ref": "#one"}, "$defs": {"a": {"$anchor": "one", "type": "array"}}}, id="anchor"),
        pytest.param({"allOf": [{"$ref": "#/allOf/1"}, {"type": "object"}]}, id="part of a list"),
        pytest.param({"properties": {f"p{n}": {"type": "string"} for n in range(1500)}}, id="many properties"),
        pytest.param({"anyOf": [{"const": n} for n in range(MOST_CHECKS - 1)]}, id="many alternatives"),
        pytest.param(HASH, id="itself"),
    ],
)
def test_a_usual_schema_is_taken(schema: dict[str, Any]) -> None:
    refuse_costly(schema)


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"$ref": "#/$defs/d0", "$defs": TWICE | {"d40": {"type": "object"}}}, id="doubles"),
        pytest.param({"allOf": [{"properties": {"a": HASH}}, {"properties": {"a": HASH}}]}, id="doubles with depth"),
        pytest.param({"anyOf": [{"items": HASH}, {"prefixItems": [HASH]}, {"contains": HASH}]}, id="items"),
        pytest.param({"patternProperties": {"a": HASH, "b": HASH}}, id="patterns that overlap"),
        pytest.param({"properties": {"a": {"allOf": [{"minimum": n} for n in range(600)]}}}, id="long list"),
        pytest.param({"$ref": "#/$defs/none"}, id="no such part"),
        pytest.param({"$ref": "https://json-schema.org/draft/2020-12/schema"}, id="another document"),
        pytest.param({"properties": {"a": {"$id": "other", "$ref": "#"}}}, id="a document inside"),
        pytest.param(
            {"$ref": "#/$defs/d0", "$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(2000)}}, id="chain"
        ),
    ],
)
def test_a_costly_schema_is_refused_quickly(schema: dict[str, Any]) -> None:
    began = time.monotonic()
    with pytest.raises(InvalidInput):
        refuse_costly(schema)
    assert time.monotonic() - began < 2
