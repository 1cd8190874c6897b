"""What order keys, failures, schedules and events cost, and that they cost nothing where there are none.

Counted in steps of SQLite's machine and in statements, so that a busy computer cannot change the result.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from pitboss.engines.sqlite import declared, events, registry, schedules
from pitboss.engines.sqlite.put import put
from pitboss.engines.sqlite.readers import Reader
from pitboss.engines.sqlite.reclaim import reclaim
from pitboss.engines.sqlite.settle import plain, settle
from pitboss.model.declared import Declared
from pitboss.model.event import NewEvent, Subscription
from pitboss.model.outcome import Transition
from pitboss.model.queue import HandlerInfo
from pitboss.model.schedule import Firing, Overlap, ScheduleSpec, firing
from pitboss.model.session import Claimed
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import TaskError
from tests.engines.sqlite.test_costs import NOW, SECOND, Store

BROKEN = TaskError(category="net", message="connection reset")
FAILED = Transition(state=State.FAILED, outcome="failed", charged=True, error=BROKEN)


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    yield store
    store.connection.close()


def fail(store: Store, claimed: Claimed) -> None:
    ends = [Settlement(id=one.id, token=one.token, transition=FAILED, queue=one.queue) for one in claimed.claims]
    assert all(answer.applied for answer in store.do(lambda act: settle(act, ends, plain(ends))))


def in_line(store: Store, key: str) -> list[str]:
    found = store.connection.execute("SELECT state FROM pitboss_tasks WHERE order_key = ? ORDER BY id", (key,))
    return [state for (state,) in found]


def test_tasks_with_only_an_origin_cost_no_more_statements(store: Store) -> None:
    store.begin()
    store.put(64, meta='{"trace":{}}')
    # The handler, the queue, a savepoint, the tasks, its release, the new queue, the counts.
    assert store.executed == 7


def test_many_lines_take_few_statements(store: Store) -> None:
    session = store.begin()
    tasks = [one for key in range(32) for one in store.tasks(2, order_key=f"k{key:02}")]
    store.do(lambda act: put(act, tasks))
    # The handler, the keys, the queue, a savepoint, the tasks, its release, the first in line by two statements, the
    # new queue, the counts.
    assert store.executed == 10
    claimed = store.claim(session, 64)
    assert (len(claimed.claims), store.executed) == (32, 5)
    store.settle(claimed)
    # The session, a savepoint, the ends, its release, who follows, the first in line, their release, the counts. Three
    # of them are two statements.
    assert store.executed == 11
    assert in_line(store, "k00") == ["completed", "pending"]
    store.settle(store.claim(session, 32))
    assert store.connection.execute("SELECT count(*) FROM pitboss_order_heads").fetchone() == (0,)


def cost_of_a_line(count: int) -> tuple[int, int, int, int]:
    """Steps of a claim, of its end, of a sweep and of a put, where this many tasks wait in one line."""
    store = Store()
    session = store.begin()
    store.put(count, order_key="k")
    claimed = store.claim(session, 5)
    taking = store.steps
    assert len(claimed.claims) == 1
    store.settle(claimed)
    ending = store.steps
    store.do(lambda act: reclaim(act, 1000))
    sweeping = store.steps
    store.put(1, order_key="k")
    store.connection.close()
    return taking, ending, sweeping, store.steps


def test_a_long_line_costs_no_more_than_a_short_one() -> None:
    short, long = cost_of_a_line(3), cost_of_a_line(3000)
    assert all(many < 1.2 * few for few, many in zip(short, long, strict=True)), (short, long)


def test_failures_without_routes_cost_one_small_read(store: Store) -> None:
    session = store.begin()
    store.put(64)
    told: list[str] = []
    claimed = store.claim(session, 64)
    store.connection.set_trace_callback(told.append)
    fail(store, claimed)
    # The tasks, the session, the ends, the routes, the counts.
    assert len(told) == 5, told
    assert sum("pitboss_handlers_routed" in text for text in told) == 1


def test_failures_with_routes_take_few_statements_however_many_they_are(store: Store) -> None:
    session = store.begin()
    routed = [
        HandlerInfo(name="job", about='{"fallback":"instead"}'),
        HandlerInfo(name="bury", about='{"dead_letters":["*"]}'),
    ]
    store.do(lambda act: registry.register(act, routed, 1000))
    store.put(256)
    fail(store, store.claim(session, 256))
    assert store.executed <= 20
    assert store.connection.execute("SELECT count(*) FROM pitboss_tasks").fetchone() == (768,)


def cost_of_looking_for_routes(count: int) -> int:
    """Steps of a failure beside this many handlers without routes."""
    store = Store()
    session = store.begin()
    store.do(lambda act: registry.register(act, [HandlerInfo(name=f"h{n}") for n in range(count)], 1000))
    store.put(1)
    fail(store, store.claim(session, 1))
    store.connection.close()
    return store.steps


def test_handlers_without_routes_cost_a_failure_nothing() -> None:
    assert cost_of_looking_for_routes(2000) < 1.1 * cost_of_looking_for_routes(1)


def specs(count: int, **options: Any) -> tuple[ScheduleSpec, ...]:
    made: dict[str, Any] = {"handler": "job", "every": 3600 * SECOND} | options
    return tuple(ScheduleSpec(name=f"s{number:06}", **made) for number in range(count))


def cost_of_a_look(count: int) -> int:
    """Steps of a look at this many schedules, none of which is due."""
    store = Store()
    store.do(lambda act: schedules.declare(act, "app", specs(count), NOW))
    store.steps = 0
    reader = Reader(store.connection, store.statements.by_name, NOW)
    found = schedules.due(reader, 1000, NOW)
    assert (found.schedules, found.next_at) == ([], NOW + 3600 * SECOND)
    store.connection.close()
    return store.steps


def test_schedules_that_are_not_due_cost_nothing() -> None:
    assert cost_of_a_look(20_000) < 1.2 * cost_of_a_look(10)


def due(store: Store, count: int, **options: Any) -> list[Firing]:
    store.do(lambda act: schedules.declare(act, "app", specs(count, every=SECOND, **options), NOW))
    store.now += SECOND
    found = schedules.due(Reader(store.connection, store.statements.by_name, store.now), 1000, store.now)
    made = [firing(one, None, store.now, {}) for one in found.schedules]
    return [one for one in made if one is not None]


@pytest.mark.parametrize("overlap", list(Overlap))
def test_many_firings_take_few_statements(store: Store, overlap: Overlap) -> None:
    session = store.begin()
    term = store.do(lambda act: registry.campaign(act, session)).term
    firings = due(store, 256, overlap=overlap)
    assert store.do(lambda act: schedules.fire(act, firings, term)) == [True] * 256
    # The term, the schedules, the handler, the queue, looks at ids and keys or a savepoint, the tasks, their keys, the
    # new queue, the schedules, the counts.
    assert store.executed <= 12
    assert store.connection.execute("SELECT count(*) FROM pitboss_tasks").fetchone() == (256,)


def test_firings_of_one_schedule_in_one_call_take_effect_one_after_the_other(store: Store) -> None:
    session = store.begin()
    term = store.do(lambda act: registry.campaign(act, session)).term
    first, second = due(store, 2, overlap=Overlap.ALLOW)
    assert store.do(lambda act: schedules.fire(act, [first, second, first, second], term)) == [True, True, False, False]


def test_many_events_take_few_statements(store: Store) -> None:
    session = store.begin()
    wanted = tuple(Subscription(handler=f"h{n}", pattern="x", ordered=n == 0) for n in range(4))
    store.do(lambda act: registry.register(act, [HandlerInfo(name=one.handler) for one in wanted], 1000))
    store.do(lambda act: declared.declare(act, Declared(app="app", subscriptions=wanted), session, NOW))
    new = [NewEvent(id=f"01900000-0000-7000-8000-{n:012}", name="x", key=f"k{n % 4}") for n in range(64)]
    answers = store.do(lambda act: events.publish(act, new))
    assert [one.handlers for one in answers] == [("h0", "h1", "h2", "h3")] * 64
    # The events, the subscriptions, four handlers, the keys, the queue; a savepoint, the tasks and its release, for
    # ordered tasks and for others; the first in line, the new queue, the events, the counts.
    assert store.executed == 18
    assert not any(one.created for one in store.do(lambda act: events.publish(act, new)))
    # The events and the subscriptions.
    assert store.executed == 2
