"""Every record becomes a line, whatever it holds, and the line names the worker and the task."""

import logging
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pitboss.telemetry.logs.lines import LONGEST_LINE, LineFormatter, StructuredMessage, as_text, stamp
from tests.telemetry.bench import TASK, claim

MAKER = LineFormatter({"pool": "download", "worker": "download-1"}, claim)


def record(message: Any = "hello", *args: Any, **changes: Any) -> logging.LogRecord:
    found = logging.LogRecord("shop", logging.INFO, "app.py", 1, message, args, None)
    found.__dict__.update(changes)
    return found


def line(message: Any = "hello", *args: Any, **changes: Any) -> dict[str, Any]:
    raw = MAKER.line(record(message, *args, **changes))
    assert raw.count(b"\n") == 1
    found: dict[str, Any] = msgspec.json.decode(raw)
    return found


class Broken:
    def __repr__(self) -> str:
        raise ValueError("no text")


def test_a_line_says_when_who_and_for_which_task() -> None:
    made = record("got %s of %d", "half", 7, created=1_700_000_000.1234)
    assert msgspec.json.decode(MAKER.line(made)) == {
        "time": "2023-11-14T22:13:20.123Z",
        "level": "info",
        "logger": "shop",
        "event": "got half of 7",
        "pool": "download",
        "worker": "download-1",
        "pid": made.process,
        "task_id": TASK,
        "handler": "fetch",
        "queue": "mail",
        "attempt": 2,
    }


def test_outside_a_task_there_are_no_fields_of_one() -> None:
    found = msgspec.json.decode(LineFormatter({}, lambda: None).line(record()))
    assert "task_id" not in found
    assert "attempt" not in found


def test_extras_are_fields_and_hide_none_of_ours() -> None:
    found = line(url="http://x", queue="theirs", took=1.5)
    assert (found["url"], found["took"]) == ("http://x", 1.5)
    assert (found["queue"], found["queue_"]) == ("mail", "theirs")


def test_an_exception_is_one_field_with_its_traceback() -> None:
    try:
        raise KeyError("missing\nkey")
    except KeyError:
        found = line(exc_info=sys.exc_info())
    assert found["exception"].startswith("Traceback (most recent call last)")
    assert "KeyError: 'missing\\nkey'" in found["exception"]


def test_structlog_events_are_taken_apart() -> None:
    assert line(StructuredMessage("fetched", {"url": "x", "name": "n"}))["name"] == "n"
    found = line({"event": "fetched", "url": "x", "level": "info", "exc_info": ValueError("no")}, _logger=1, _name="i")
    assert (found["event"], found["url"]) == ("fetched", "x")
    assert found["exception"].endswith("ValueError: no")
    assert "level_" not in found


def test_other_handlers_get_an_event_as_text() -> None:
    assert str(StructuredMessage("fetched", {"url": "x", "note": "a b"})) == "fetched url=x note='a b'"


@pytest.mark.parametrize(
    "value",
    [
        "\ud800",
        b"\xff",
        {1, 2},
        object(),
        Broken(),
        1 << 80,
        float("nan"),
        {("a", 1): 2},
        [[["\ud800"]]],
        Exception("x"),
    ],
)
def test_any_value_makes_a_line(value: Any) -> None:
    found = line("hello", thing=value)
    assert found["event"] == "hello"
    assert "thing" in found


def test_a_value_that_holds_itself_makes_a_line() -> None:
    knot: list[Any] = []
    knot.append(knot)
    assert line("hello", thing=knot)["event"] == "hello"


def test_arguments_that_do_not_fit_lose_nothing() -> None:
    assert "%d things" in line("%d things", "seven")["event"]
    assert "seven" in line("%d things", "seven")["event"]


def test_a_huge_line_is_cut() -> None:
    for huge in ({"page": "x" * 10_000_000}, {f"k{number}": "y" * 10_000 for number in range(1000)}):
        raw = MAKER.line(record("x" * 10_000_000, **huge))
        assert len(raw) <= LONGEST_LINE
        assert msgspec.json.decode(raw)["task_id"] == TASK


SHORT = some.text(max_size=5)


@settings(max_examples=50, deadline=None)
@given(some.dictionaries(SHORT, SHORT | some.floats() | some.lists(SHORT, max_size=2), max_size=4))
def test_any_facts_make_one_line(facts: dict[str, Any]) -> None:
    raw = MAKER.line(record(StructuredMessage("hello", facts)))
    assert raw.endswith(b"\n")
    assert raw.count(b"\n") == 1
    assert msgspec.json.decode(raw)["worker"] == "download-1"


def test_times_sort_as_text() -> None:
    moments = [0.0, 1.0005, 1_700_000_000.0, 1_700_000_000.001, 1_700_000_000.9996]
    assert [stamp(moment) for moment in moments] == sorted(stamp(moment) for moment in moments)


def test_a_person_reads_it_in_one_line() -> None:
    text = as_text(line("got it", size=5), "12:00:00")
    assert text == "12:00:00 download-1 INFO    shop: got it size=5  [fetch 0123456789ab #2]"
    told = LineFormatter({}, lambda: None, pid="manager_pid").fields(record("crashed", worker="a-1", pid=9, why=""))
    assert as_text(told, "12:00:00") == "12:00:00 manager INFO    crashed worker=a-1 pid=9"
    told["where"] = "File a\nFile b\n"
    assert as_text(told, "12:00:00").splitlines()[1:] == ["File a", "File b"]
