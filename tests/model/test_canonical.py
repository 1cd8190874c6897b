"""Canonical JSON: one text per value, no value that a store could not hold, and never a crash."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.canonical import MAX_BYTES, MAX_DEPTH, from_json, printable, recoded, to_json
from pitboss.model.errors import InvalidInput

storable_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | storable_text
)
documents = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(storable_text, inner), max_leaves=20)
anything = st.recursive(
    scalars
    | st.floats()
    | st.integers()
    | st.text(st.characters(exclude_categories=[]))
    | st.binary()
    | st.complex_numbers()
    | st.just(object()),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(st.characters(exclude_categories=[])) | st.integers() | st.none(), inner)
        | st.sets(st.integers())
        | st.tuples(inner)
    ),
    max_leaves=10,
)


@given(documents)
def test_a_document_comes_back_as_it_was(value: object) -> None:
    text = to_json(value)
    assert from_json(text) == value
    assert json.loads(text) == value


@given(documents)
def test_canonical_text_is_its_own_canonical_text(value: object) -> None:
    text = to_json(value)
    assert recoded(text) == recoded(text.encode()) == to_json(from_json(text)) == text


@given(documents)
def test_the_way_it_was_written_does_not_matter(value: object) -> None:
    foreign = json.dumps(value, indent=2, ensure_ascii=True)
    assert recoded(foreign) == to_json(value)


@given(st.dictionaries(storable_text, st.integers(0, 9)))
def test_keys_are_sorted_and_nothing_is_spaced(value: dict[str, int]) -> None:
    expected = json.dumps(dict(sorted(value.items())), separators=(",", ":"), ensure_ascii=False)
    assert json.loads(to_json(value)) == json.loads(expected)
    assert list(from_json(to_json(value))) == sorted(value)


@given(anything)
def test_whatever_is_handed_in_is_stored_or_refused(value: object) -> None:
    try:
        text = to_json(value)
    except InvalidInput:
        return
    assert "\0" not in text
    assert "\\u0000" not in text.replace("\\\\", "")
    assert recoded(text) == text


@given(st.binary() | st.text())
def test_foreign_input_is_recoded_or_refused(data: bytes | str) -> None:
    try:
        text = recoded(data)
    except InvalidInput:
        return
    assert recoded(text) == text


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": [1, float("nan")]}, r"params\.a\[1\]"),
        ({"a": {"b": float("inf")}}, r"params\.a\.b"),
        ({"a": "x\0y"}, r"params\.a contains a NUL"),
        ({"k\0": 1}, "key"),
        (["\ud800"], r"params\[0\] contains a lone surrogate"),
        ({"n": 2**64}, r"params\.n is an integer outside 64 bits"),
        ({"n": -(2**63) - 1}, r"params\.n is an integer outside 64 bits"),
        ({"o": object()}, r"params\.o is a object"),
    ],
)
def test_a_refusal_names_the_place(value: object, place: str) -> None:
    with pytest.raises(InvalidInput, match=place):
        to_json(value, what="params")


def nested(depth: int) -> object:
    value: object = 0
    for _ in range(depth):
        value = [value]
    return value


def test_depth_is_limited() -> None:
    assert from_json(to_json(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    for depth in (MAX_DEPTH + 1, 500, 100_000):
        with pytest.raises(InvalidInput):
            to_json(nested(depth))
    with pytest.raises(InvalidInput):
        recoded("[" * 100_000 + "]" * 100_000)


def test_size_is_limited_in_bytes() -> None:
    assert len(to_json("é" * (MAX_BYTES // 2 - 1)).encode()) == MAX_BYTES
    with pytest.raises(InvalidInput, match="1048578 bytes"):
        to_json("é" * (MAX_BYTES // 2))


@pytest.mark.parametrize(
    "text", ["", "{", "nul", "NaN", "[1,]", "{'a':1}", '"\\ud800"', '"\\u0000"', "1e999", "9" * 30]
)
def test_bad_foreign_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        recoded(text)


@dataclass
class Order:
    number: int
    note: str | None


def test_objects_with_a_json_form_are_taken() -> None:
    value = {
        "order": Order(7, None),
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "id": UUID(int=5),
        "some": (1, 2),
    }
    text = '{"at":"2026-01-02T03:04:05Z","id":"00000000-0000-0000-0000-000000000005",'
    assert to_json(value) == text + '"order":{"note":null,"number":7},"some":[1,2]}'


def test_objects_are_looked_into() -> None:
    with pytest.raises(InvalidInput, match="NUL"):
        to_json({"order": Order(7, "a\0b")})
    with pytest.raises(InvalidInput, match="outside 64 bits"):
        to_json([Order(2**70, None)])


@given(st.text(st.characters(exclude_categories=[])), st.integers(2, 50))
def test_an_error_s_text_is_always_made_storable(text: str, limit: int) -> None:
    shown = printable(text, limit)
    assert to_json(shown)
    assert len(shown) <= limit + 60
