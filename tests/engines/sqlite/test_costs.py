"""The cost of a claim does not depend on the number of members, items and finished tasks.

Counted in steps of SQLite's machine and in statements, so that a busy computer cannot change the result.
"""

import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from pitboss.dispatch.settler import settlement_of, unmade
from pitboss.engines.sqlite import batches, operations, registry, resource_pools
from pitboss.engines.sqlite.act import Act, Statements
from pitboss.engines.sqlite.batch_lifecycle import conclude
from pitboss.engines.sqlite.claim import claim
from pitboss.engines.sqlite.put import put
from pitboss.engines.sqlite.reclaim import reclaim
from pitboss.engines.sqlite.schema import upgrade
from pitboss.engines.sqlite.settle import plain, settle
from pitboss.engines.sqlite.totals import FlowWriter
from pitboss.model.batch import NewBatch, Pause, Start
from pitboss.model.filter import parsed
from pitboss.model.limits import Window
from pitboss.model.operation import NewOperation, Verb
from pitboss.model.outcome import Transition
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import Limits, NewResource, PoolRules, Report, ResourceOutcome, Want
from pitboss.model.session import Claimed, ClaimRequest, SessionInfo, Slot
from pitboss.model.states import State
from pitboss.model.task import NewTask

SECOND = 1_000_000
NOW = 1_800_000_000 * SECOND
ONCE_AN_HOUR = PoolRules(limits=Limits(windows=(Window(1, 3600 * SECOND),), use_within=0))
DONE = Transition(state=State.COMPLETED, outcome="completed", charged=True)
OK = Report(outcome=ResourceOutcome.OK, destination="example.org")
Do = Callable[[Act], Any]


class Store:
    """A store in memory that measures the cost of each act."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        upgrade(self.connection)
        self.statements, self.now = Statements(), NOW
        self.steps, self.executed = 0, 0
        self.connection.set_progress_handler(self._step, 1)
        self.connection.set_trace_callback(self._execute)
        self.ids = iter(range(10**9))

    def do(self, call: Do) -> Any:
        self.steps = self.executed = 0
        act = Act(self.connection, self.statements, self.now)
        answer = call(act)
        conclude(act)
        return answer

    def begin(self, pool: str | None = None) -> int:
        self.do(lambda act: registry.register(act, [HandlerInfo(name="job", resources=pool)], 1000))
        info = SessionInfo(host="here", handlers=("job",), ttl=10**15)
        session: int = self.do(lambda act: registry.open_session(act, info, 1000))[0].number
        return session

    def put(self, count: int, **options: Any) -> None:
        self.do(lambda act: put(act, self.tasks(count, **options)))

    def tasks(self, count: int, **options: Any) -> list[NewTask]:
        return [NewTask(id=f"{next(self.ids):09}", handler="job", **options) for _ in range(count)]

    def claim(self, session: int, free: int = 1) -> Claimed:
        request = ClaimRequest(
            session=session, slots=(Slot(free=free, queues=("default",)),), handlers=frozenset({"job"})
        )
        claimed: Claimed = self.do(lambda act: claim(act, request).claimed())
        return claimed

    def settle(self, claimed: Claimed, report: Report | None = None) -> None:
        done = [settlement_of(one, DONE, report=report, use_end=unmade(one)) for one in claimed.claims]
        answers = self.do(lambda act: settle(act, done, plain(done)))
        assert all(answer.applied for answer in answers)

    def _step(self) -> int:
        self.steps += 1
        return 0

    def _execute(self, _: str) -> None:
        self.executed += 1


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    yield store
    store.connection.close()


def members(count: int, first: int = 0, **options: Any) -> list[NewResource]:
    return [NewResource(name=f"m{number:05}", **options) for number in range(first, first + count)]


def cost_of_a_turn(count: int) -> tuple[int, int]:
    """Steps of a claim and of its end, in a pool of this many members of which twenty may still be used this hour."""
    store = Store()
    session = store.begin("proxies")
    store.do(lambda act: resource_pools.declare(act, "proxies", ONCE_AN_HOUR))
    store.do(lambda act: resource_pools.add(act, "proxies", members(count)))
    store.put(count)
    store.settle(store.claim(session, count - 20), OK)
    store.put(30)
    claimed = store.claim(session, 10)
    taking = store.steps
    assert len(claimed.claims) == 10
    store.settle(claimed, OK)
    store.connection.close()
    return taking, store.steps


def test_ten_thousand_members_cost_no_more_than_twice_a_hundred() -> None:
    few, many = cost_of_a_turn(100), cost_of_a_turn(10_000)
    assert many[0] < 2 * few[0]
    assert many[1] < 2 * few[1]


def cost_of_a_portion(verb: Verb, dead: int, beside: int) -> int:
    """Steps of the third portion of an operation on this many failed tasks, beside as many of other states."""
    store = Store()
    store.begin()
    store.put(dead, tags=("dead",))
    store.put(beside)
    store.connection.execute(
        "UPDATE pitboss_tasks SET finished_at = created_at - 1, attempts = 1,"
        " state = CASE WHEN tags IS NULL THEN 'completed' ELSE 'failed' END"
    )
    new = NewOperation(id="o", verb=verb, wanted=parsed("state:failed"))
    operation = store.do(lambda act: operations.begin(act, new))
    for _ in range(3):
        operation = store.do(partial(operations.advance, operation="o", cursor=operation.cursor, limit=10))
    assert operation.done == 30
    store.connection.close()
    return store.steps


@pytest.mark.parametrize("verb", [Verb.RETRY, Verb.DISCARD])
def test_a_portion_costs_the_same_however_many_tasks_failed_or_completed(verb: Verb) -> None:
    few = cost_of_a_portion(verb, 300, 300)
    assert cost_of_a_portion(verb, 6000, 6000) <= 1.2 * few


def cost_of_an_empty_claim(count: int) -> int:
    store = Store()
    session = store.begin("proxies")
    store.do(lambda act: resource_pools.declare(act, "proxies", ONCE_AN_HOUR))
    store.do(lambda act: resource_pools.add(act, "proxies", members(count)))
    store.put(count + 10)
    store.settle(store.claim(session, count), OK)
    claimed = store.claim(session, 10)
    assert claimed.claims == []
    assert claimed.next_due == NOW + 3600 * SECOND
    store.connection.close()
    return store.steps


def test_a_claim_that_finds_all_members_away_costs_the_same_with_many() -> None:
    assert cost_of_an_empty_claim(5000) < 1.2 * cost_of_an_empty_claim(50)


def test_a_plain_turn_takes_no_more_statements_than_before_there_were_resources(store: Store) -> None:
    session = store.begin()
    store.put(64)
    # The handler, the queue, a savepoint, the tasks, its release, the new queue, the counts.
    assert store.executed == 7
    claimed = store.claim(session, 64)
    # The session, the queue, the tasks, taking them, the counts.
    assert (len(claimed.claims), store.executed) == (64, 5)
    store.settle(claimed)
    # The session, a savepoint, the ends, its release, the counts.
    assert store.executed == 5


def test_a_transaction_writes_what_happened_in_two_statements_for_each_kind(store: Store) -> None:
    session = store.begin()
    store.put(64)
    claimed = store.claim(session, 64)
    store.settle(claimed)
    act, writer = Act(store.connection, store.statements, store.now), FlowWriter()
    act.happened("put", "default", "job", 64)
    act.happened("completed", "default", "job", 64)
    store.executed = 0
    writer.write(act, act.flows)
    # Which handlers have totals, once; then for each kind the bucket and the total.
    assert store.executed == 5
    store.executed = 0
    writer.write(act, act.flows)
    assert store.executed == 4


def remote_slots(count: int, turn: int = 0, **options: Any) -> tuple[Slot, ...]:
    """As many remote workers ask in one request, for one task each."""
    wanted: dict[str, Any] = {"free": 1, "queues": ("default",), "handlers": ("job",), "lasts": SECOND} | options
    return tuple(Slot(**wanted, worker=f"w{number}", repeat=f"{turn}.{number}") for number in range(count))


def remote_claim(store: Store, session: int, slots: tuple[Slot, ...]) -> Claimed:
    request = ClaimRequest(session=session, slots=slots)
    claimed: Claimed = store.do(lambda act: claim(act, request).claimed())
    return claimed


def test_many_remote_workers_take_few_statements(store: Store) -> None:
    session = store.begin()
    store.put(100)
    claimed = remote_claim(store, session, remote_slots(64))
    assert [(one.slot, one.claim_expires_at) for one in claimed.claims] == [(n, NOW + SECOND) for n in range(64)]
    # The session, the queue, the keys, the tasks, taking them, the counts.
    assert store.executed == 6
    assert [one.id for one in remote_claim(store, session, remote_slots(64)).claims] == [
        one.id for one in claimed.claims
    ]
    # As before, without the last three: all keys were found.
    assert store.executed == 3
    store.settle(claimed)
    # The session, a savepoint, the ends, its release, the counts.
    assert store.executed == 5


def test_slots_of_remote_workers_without_keys_look_none_up(store: Store) -> None:
    session = store.begin()
    store.put(100)
    slots = tuple(Slot(free=1, queues=("default",), lasts=SECOND) for _ in range(64))
    assert len(remote_claim(store, session, slots).claims) == 64
    assert store.executed == 5


def test_further_slots_cost_nothing_where_nothing_waits(store: Store) -> None:
    session = store.begin()
    steps = {}
    for count in (1, 64):
        assert remote_claim(store, session, remote_slots(count)).claims == []
        steps[count] = store.executed
    assert steps[1] == steps[64] == 3


def cost_of_a_claim_beside(count: int) -> int:
    """Steps of a manager's claim beside a queue of remote workers in which this many tasks wait."""
    store = Store()
    session = store.begin()
    store.do(lambda act: registry.register(act, [HandlerInfo(name="video", queue="video", remote=True)], 1000))
    store.do(lambda act: put(act, [NewTask(id=f"v{n}", handler="video", queue="video") for n in range(count)]))
    store.put(1)
    request = ClaimRequest(session=session, slots=(Slot(free=5),), handlers=frozenset({"job"}))
    claimed = store.do(lambda act: claim(act, request).claimed())
    assert [one.handler for one in claimed.claims] == ["job"]
    store.connection.close()
    return store.steps


def test_a_backlog_of_remote_workers_costs_managers_nothing() -> None:
    assert cost_of_a_claim_beside(5000) < 1.1 * cost_of_a_claim_beside(1)


def cost_of_a_sweep(count: int) -> int:
    """Steps of a sweep in which one claim has run out and this many have not."""
    store = Store()
    session = store.begin()
    store.put(count + 1)
    remote_claim(store, session, remote_slots(1))
    remote_claim(store, session, (Slot(free=count, queues=("default",), lasts=3600 * SECOND),))
    store.now += SECOND
    assert store.do(lambda act: reclaim(act, 1000)).lost == 1
    store.connection.close()
    return store.steps


def test_a_sweep_reads_only_claims_that_ran_out() -> None:
    assert cost_of_a_sweep(2000) < 1.2 * cost_of_a_sweep(1)


def test_a_turn_with_resources_takes_few_statements_however_many_tasks_it_is(store: Store) -> None:
    session = store.begin("proxies")
    store.do(lambda act: resource_pools.declare(act, "proxies", PoolRules(limits=Limits(windows=(Window(5, SECOND),)))))
    store.do(lambda act: resource_pools.add(act, "proxies", members(256)))
    store.put(256)
    claimed = store.claim(session, 256)
    assert (len(claimed.claims), store.executed <= 20) == (256, True), store.executed
    assert all(claim.leased is not None and claim.leased.open_for for claim in claimed.claims)
    store.settle(claimed, OK)
    assert store.executed <= 12


def steps_of_starting(count: int) -> tuple[int, int, int]:
    """Steps of starting a batch, of the first claim from it, and of pausing it."""
    store = Store()
    session = store.begin()
    store.do(lambda act: batches.create(act, NewBatch(id="b", paused=True), store.tasks(count)))
    store.do(lambda act: batches.change(act, "b", Start(), 1000))
    starting = store.steps
    assert len(store.claim(session, 3).claims) == 3
    claiming = store.steps
    store.do(lambda act: batches.change(act, "b", Pause(), 1000))
    store.connection.close()
    return starting, claiming, store.steps


def test_starting_and_pausing_a_batch_costs_the_same_with_many_items() -> None:
    few, many = steps_of_starting(10), steps_of_starting(10_000)
    assert all(large < 1.2 * small for small, large in zip(few, many, strict=True)), (few, many)


def test_a_rare_label_is_found_behind_a_thousand_others(store: Store) -> None:
    session = store.begin("proxies")
    store.do(lambda act: resource_pools.add(act, "proxies", members(1000)))
    store.do(lambda act: resource_pools.add(act, "proxies", members(1, first=5000, labels=("eu", "fast"))))
    store.put(2)
    store.put(1, want=Want(labels=("fast",)))
    store.put(1, want=Want(labels=("fast", "us")))
    claimed = store.claim(session, 10)
    assert [one.leased.name for one in claimed.claims if one.leased] == ["m00000", "m00001", "m05000"]


def test_members_are_given_in_their_order_over_many_portions(store: Store) -> None:
    session = store.begin("proxies")
    store.do(lambda act: resource_pools.declare(act, "proxies", PoolRules(limits=Limits(concurrency=2))))
    store.do(lambda act: resource_pools.add(act, "proxies", members(300)))
    store.put(601)
    claimed = store.claim(session, 601)
    names = [one.leased.name for one in claimed.claims if one.leased]
    assert names == [f"m{number:05}" for number in range(300)] * 2
    assert [short.why for short in claimed.shortages] == ["all busy"]


def test_no_more_uses_are_remembered_than_windows_look_at(store: Store) -> None:
    session = store.begin("proxies")
    rules = PoolRules(limits=Limits(windows=(Window(3, SECOND), Window(2, 10))))
    store.do(lambda act: resource_pools.declare(act, "proxies", rules))
    store.do(lambda act: resource_pools.add(act, "proxies", members(2)))
    for _ in range(20):
        store.put(2)
        store.now += SECOND
        store.settle(store.claim(session, 2), OK)
    assert store.connection.execute("SELECT count(*) FROM pitboss_uses").fetchone() == (6,)


def test_no_member_is_given_before_its_time_after_the_clock_was_set_back(store: Store) -> None:
    session = store.begin("proxies")
    store.do(lambda act: resource_pools.declare(act, "proxies", ONCE_AN_HOUR))
    store.do(lambda act: resource_pools.add(act, "proxies", members(1)))
    store.put(2)
    store.settle(store.claim(session), OK)
    again = NOW + 3600 * SECOND
    store.now = again + SECOND
    store.do(lambda act: act.run("member_wake", "proxies", act.now))
    store.now = again - SECOND
    claimed = store.claim(session)
    assert (claimed.claims, claimed.next_due) == ([], again)
    assert [(short.why, short.until) for short in claimed.shortages] == [("all away", again)]
    store.now = again
    assert len(store.claim(session).claims) == 1
