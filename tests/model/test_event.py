"""Names, patterns and the tasks that an event becomes."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.canonical import from_json
from pitboss.model.errors import InvalidInput
from pitboss.model.event import (
    NewEvent,
    Subscribers,
    Subscription,
    checked_event_name,
    checked_pattern,
    event_task_id,
)
from pitboss.model.ids import IdMaker, checked_id

EVENT = "01900000-0000-7000-8000-000000000000"
parts = st.text("abc_", min_size=1, max_size=3)
names = st.lists(parts, min_size=1, max_size=4).map(".".join)
patterns = st.lists(parts | st.just("*"), min_size=1, max_size=4).map(".".join)


@pytest.mark.parametrize("name", ["a", "user.signup", "a.b.c", "A-1.b_2:x"])
def test_good_names(name: str) -> None:
    assert checked_event_name(name) == checked_pattern(name) == name


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", "a..b", "a b", "a.*", "é", "a" * 129, "a\n", None, 5])
def test_bad_names(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"user\.signup"):
        checked_event_name(name)


@pytest.mark.parametrize("pattern", ["*", "**", "a.*", "*.b", "a.**", "a.*.c", "*.**"])
def test_good_patterns(pattern: str) -> None:
    assert checked_pattern(pattern) == pattern


@pytest.mark.parametrize("pattern", ["", "a*", "**.a", "a.**.b", "a.***", "*a", "a..*", "a.*\n"])
def test_bad_patterns(pattern: str) -> None:
    with pytest.raises(InvalidInput):
        checked_pattern(pattern)


@given(name=names, pattern=patterns, rest=st.booleans())
def test_a_pattern_fits_as_a_plain_walk_says(name: str, pattern: str, rest: bool) -> None:
    whole = f"{pattern}.**" if rest else pattern
    said = bool(Subscribers([Subscription(handler="h", pattern=whole)]).of(name))
    got, wanted = name.split("."), pattern.split(".")
    fits = len(got) > len(wanted) if rest else len(got) == len(wanted)
    assert said == (fits and all(one in ("*", part) for one, part in zip(wanted, got, strict=False)))


def test_the_task_of_an_event() -> None:
    event = NewEvent(id=EVENT, name="user.signup", data='{"id":7}', key="u:7")
    wants = Subscription(handler="welcome", pattern="user.*", parameter="data", ordered=True, priority=-1, queue="mail")
    (task,) = Subscribers([wants]).tasks(event)
    assert checked_id(task.id) == Subscribers([wants]).tasks(event)[0].id
    assert (task.handler, task.queue, task.priority) == ("welcome", "mail", -1)
    assert from_json(task.params) == {"data": {"id": 7}}
    assert task.order_key == "welcome/u:7"
    assert from_json(task.meta or "") == {"event": {"id": EVENT, "name": "user.signup", "key": "u:7"}}


def test_without_a_key_there_is_no_order() -> None:
    wants = Subscription(handler="h", pattern="x", ordered=True)
    (task,) = Subscribers([wants]).tasks(NewEvent(id=EVENT, name="x"))
    assert task.order_key is None


@given(clock=st.lists(st.integers(0, 2000), min_size=1, max_size=40), seed=st.randoms(use_true_random=False))
def test_the_tasks_of_a_handler_are_in_the_order_of_the_events(clock: list[int], seed: Random) -> None:
    """Those of one millisecond too: a line with an order key is sorted by id."""
    moments = iter(clock)
    make = IdMaker(lambda: next(moments), seed.getrandbits)
    tasks = [event_task_id(make(), "h") for _ in clock]
    assert tasks == sorted(tasks)
    assert len({*tasks, *map(checked_id, tasks)}) == len(clock)
