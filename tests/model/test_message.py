"""Messages of a broker as values."""

from math import inf
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika.data import encode_table

from pitboss.engines.amqp.messages import to_send
from pitboss.model.canonical import from_json, to_json
from pitboss.model.errors import InvalidInput
from pitboss.model.message import (
    ATTEMPTS,
    CATEGORY,
    ERROR,
    HANDLER,
    HEADER_BYTES,
    MALFORMED,
    REASON,
    SHORT_BYTES,
    SOURCE,
    TASK,
    Message,
    OutMessage,
    Properties,
    arguments,
    dead_letter,
    marked,
    read_stored,
    refused,
    stored,
    table_size,
    takes_whole,
    without_labels,
)
from pitboss.model.meta import read_meta

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
# Those of Pitboss are replaced, and those of copies are left out.
NAME = TEXT.filter(lambda name: not name.startswith("x-pitboss-") and name not in ("CC", "BCC"))
PROPERTIES = st.builds(
    Properties,
    message_id=st.none() | TEXT,
    headers=st.dictionaries(NAME, VALUE, max_size=4),
    content_type=st.none() | TEXT,
    correlation_id=st.none() | TEXT,
    reply_to=st.none() | TEXT,
    timestamp=st.none() | st.integers(0, 2**40),
    priority=st.none() | st.integers(0, 255),
    expiration=st.none() | st.integers(0, 10**9).map(str),
)
DEAD: dict[str, Any] = {
    "id": "t1",
    "handler": "download",
    "queue": "q",
    "params": {"link": "x"},
    "attempts": 3,
    "reason": "attempts used up",
    "error": {"category": "net", "message": "no route", "type": "OSError"},
}


def message(body: bytes = b'{"link":"x"}', **properties: Any) -> Message:
    return Message(1, body, Properties(**properties), "media", "video.new")


def letter(dead: dict[str, Any] | None = None, meta: str | None = None, *, whole: bool = False) -> OutMessage:
    return dead_letter({**DEAD, **(dead or {})}, meta, source="one", queue="dlq", task="out1", whole=whole)


@given(body=st.binary(max_size=200) | TEXT.map(str.encode), properties=PROPERTIES, key=TEXT, exchange=TEXT)
def test_every_message_reads_back_as_it_was_stored(
    body: bytes, properties: Properties, key: str, exchange: str
) -> None:
    out = OutMessage(routing_key=key, exchange=exchange, body=body, properties=properties)
    assert read_stored(stored(out)) == out


@pytest.mark.parametrize(
    "body", [b"", b"\0", b"a\0b", bytes(range(256)), "ü €".encode(), b"\x7f\x1b[0m", b"\xef\xbb\xbf{}", b"\n\r\t "]
)
def test_odd_bodies_are_stored_byte_for_byte(body: bytes) -> None:
    kept = stored(OutMessage(routing_key="q", body=body))
    assert "\\u0000" not in kept
    assert read_stored(kept).body == body


def test_text_is_stored_as_text_that_a_person_can_read() -> None:
    kept = from_json(stored(OutMessage(routing_key="q", body='{"a":"ü"}'.encode())))
    assert (kept["text"], "base64" in kept) == ('{"a":"ü"}', False)


def test_a_message_larger_than_the_store_takes_is_refused() -> None:
    with pytest.raises(InvalidInput, match="bytes"):
        stored(OutMessage(routing_key="q", body=b"x" * 1_100_000))


@pytest.mark.parametrize(
    ("schema", "whole"),
    [
        ({"properties": {"message": {"type": "object"}}}, True),
        ({"properties": {"message": {"$ref": "#/$defs/Download"}}}, True),
        ({"properties": {"message": {}}}, True),
        ({"properties": {"message": {"type": "string"}}}, False),
        ({"properties": {"message": {"type": "array"}}}, False),
        ({"properties": {"message": {"type": "integer"}}}, False),
        ({"properties": {"message": {"type": "object"}, "other": {}}}, False),
        ({"properties": {"link": {"type": "string"}}}, False),
        ({"properties": {}}, False),
        ({}, False),
    ],
)
def test_a_handler_whose_only_parameter_is_message_takes_it_whole(schema: dict[str, Any], whole: bool) -> None:
    assert takes_whole(to_json(schema)) is whole


@pytest.mark.parametrize("value", [None, 1, "text", [], [{}], True])
def test_only_objects_have_arguments(value: object) -> None:
    assert arguments(value, whole=True) is None
    assert arguments(value, whole=False) is None


def test_an_object_is_the_arguments_or_the_one_argument() -> None:
    assert arguments({"a": 1}, whole=False) == {"a": 1}
    assert arguments({"a": 1}, whole=True) == {"message": {"a": 1}}


@given(properties=PROPERTIES)
def test_what_came_with_a_message_is_in_the_meta_of_its_task(properties: Properties) -> None:
    meta = marked(Message(1, b"{}", properties, "media", "video.new"), "one", "in")
    mark = read_meta(meta).message
    assert mark is not None
    assert (mark.source, mark.queue, mark.exchange, mark.routing_key) == ("one", "in", "media", "video.new")
    assert (mark.id, mark.headers) == (properties.message_id, properties.headers)
    again = msgspec.convert({**mark.properties, "message_id": mark.id, "headers": mark.headers}, Properties)
    assert again == properties


def test_a_dead_letter_says_what_went_wrong() -> None:
    meta = marked(message(message_id="m1", headers={"mine": 1}, reply_to="back", type="job"), "one", "in")
    out = letter(meta=meta)
    assert (out.routing_key, out.exchange, out.body) == ("dlq", "", b'{"link":"x"}')
    assert out.properties == Properties(
        message_id="m1",
        headers={
            "mine": 1,
            TASK: "t1",
            SOURCE: "one",
            HANDLER: "download",
            REASON: "attempts used up",
            CATEGORY: "net",
            ERROR: "OSError: no route",
            ATTEMPTS: 3,
        },
        content_type="application/json",
        reply_to="back",
        type="job",
    )


@pytest.mark.parametrize(
    ("dead", "reason", "error"),
    [
        ({"error": None, "reason": "expired"}, "expired", ""),
        ({"error": None, "reason": ""}, "failed", ""),
        ({"reason": ""}, "net", "OSError: no route"),
        ({"error": {"category": "net", "message": "plain"}}, "attempts used up", "plain"),
        ({"error": {"category": "net", "message": "it is over", "type": "Fail"}}, "attempts used up", "it is over"),
    ],
)
def test_a_dead_letter_without_an_error_has_a_reason_too(dead: dict[str, Any], reason: str, error: str) -> None:
    told = letter(dead).properties.headers
    assert (told[REASON], told[ERROR]) == (reason, error)


def test_long_errors_are_cut() -> None:
    told = letter({"error": {"category": "x", "message": "m" * 5000, "type": "E"}}).properties.headers
    assert (len(told[ERROR]), told[ERROR][-1]) == (2000, "…")


@pytest.mark.parametrize(
    ("params", "whole", "body"),
    [
        ({"message": {"link": "x"}}, True, {"link": "x"}),
        ({"message": {"link": "x"}}, False, {"message": {"link": "x"}}),
        ({"link": "x"}, True, {"link": "x"}),
        ({}, False, {}),
    ],
)
def test_the_body_is_what_the_message_was(params: dict[str, Any], whole: bool, body: object) -> None:
    assert from_json(letter({"params": params}, whole=whole).body.decode()) == body


def test_a_task_that_was_no_message_has_the_id_of_its_outbox_task() -> None:
    out = letter()
    assert (out.properties.message_id, out.properties.content_type) == ("out1", "application/json")


def test_a_follow_up_has_nothing_of_the_message_before_it() -> None:
    """It would be taken for a repetition of that message."""
    foreign = marked(message(message_id="m1", headers={"mine": 1}), "two", "in")
    own = marked(message(message_id="m1", headers={"mine": 1}), "one", "in")
    for out in (letter(meta=foreign), letter({"parent": "t0"}, own)):
        assert out.properties.message_id == "out1"
        assert "mine" not in out.properties.headers
    assert letter({"parent": None}, own).properties.message_id == "m1"


def test_a_message_without_an_id_gets_one() -> None:
    assert letter(meta=marked(message(), "one", "in")).properties.message_id == "out1"


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_dead_letters_do_not_expire_and_are_not_copied(name: str) -> None:
    """Regression: RabbitMQ acts on both. One dropped malformed messages, the other sent them back to their source."""
    came = message(headers={name: ["in"], "mine": 1}, expiration="1000", message_id="m1")
    no_task = refused(came, "why", source="one", handler="download", queue="dlq")
    for out in (no_task, letter(meta=marked(came, "one", "in"))):
        assert out.properties.expiration is None
        assert name not in out.properties.headers
        assert (out.properties.headers["mine"], out.properties.message_id) == (1, "m1")


@given(body=st.binary(max_size=100), properties=PROPERTIES, reason=st.text(max_size=3000))
def test_a_refused_message_keeps_its_body_and_properties(body: bytes, properties: Properties, reason: str) -> None:
    out = refused(Message(1, body, properties), reason, source="one", handler="download", queue="dlq")
    assert (out.routing_key, out.exchange, out.body) == ("dlq", "", body)
    told = out.properties.headers
    assert (told[SOURCE], told[HANDLER], told[REASON]) == ("one", "download", MALFORMED)
    assert told[ERROR][:1999] == reason[:1999]
    kept = msgspec.structs.replace(properties, expiration=None)
    assert without_labels(out.properties) == kept


def test_labels_of_a_death_are_taken_off() -> None:
    out = letter(meta=marked(message(message_id="m1", headers={"mine": 1}), "one", "in"))
    assert without_labels(out.properties).headers == {"mine": 1}


@given(st.dictionaries(TEXT, VALUE | st.floats(allow_nan=False, allow_infinity=False), max_size=4))
def test_headers_take_no_more_bytes_than_is_said(headers: dict[str, Any]) -> None:
    out = OutMessage(routing_key="q", body=b"1", properties=Properties(headers=headers))
    pieces: list[bytes] = []
    encode_table(pieces, to_send(out).headers)
    assert len(b"".join(pieces)) <= table_size(headers)


def test_a_dead_letter_leaves_out_what_the_broker_would_not_take_back() -> None:
    """Regression: such a letter was tried for ever, and each time the broker ended the connection of all others."""
    large = Properties(message_id="x" * 300, type="kept", headers={"x": "y" * HEADER_BYTES})
    message = Message(1, b"1", large)
    told = {"source": "one", "handler": "download", "queue": "q_dlq"}
    meta = marked(message, "one", "q")
    letters = [
        refused(message, "not JSON", **told),
        dead_letter(DEAD, meta, source="one", queue="q_dlq", task="o1", whole=False),
    ]
    for letter, id_ in zip(letters, (None, "o1"), strict=True):
        assert table_size(letter.properties.headers) <= HEADER_BYTES
        assert letter.properties.headers[SOURCE] == "one"
        assert "too large to be kept" in letter.properties.headers[ERROR]
        assert (letter.properties.message_id, letter.properties.type) == (id_, "kept")
    assert table_size({"x" * (SHORT_BYTES + 1): 1}) == table_size({"x": {"n": 2**63}}) == inf


def test_a_message_that_is_too_large_is_refused_before_it_is_read() -> None:
    class Body(bytes):
        def decode(self, *_: Any) -> str:
            raise AssertionError

    with pytest.raises(InvalidInput, match="at most 1048576"):
        stored(OutMessage(routing_key="q", body=Body(b"x" * 2**21)))
