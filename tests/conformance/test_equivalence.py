"""All engines are one engine: the same acts, equal answers and equal stores after every one.

`--hypothesis-profile=long` looks for hours instead of seconds.
"""

from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from pitboss.model.batch import BatchAct
from pitboss.model.filter import Filter, parsed
from pitboss.model.limits import rate
from pitboss.model.operation import Verb
from pitboss.model.partition import PartitionChange
from pitboss.model.queue import QueueChange
from pitboss.model.resource import Report, ResourceChange, Want
from pitboss.model.session import SessionInfo, Slot
from pitboss.model.task import Unique
from tests.conformance.acts import (
    FILTERS,
    HANDLERS,
    LASTS,
    NARROWED,
    ORDERS,
    PERIODS,
    QUEUES,
    RATES,
    REPEATED,
    SECOND,
    STEPS,
    WORDS,
)
from tests.conformance.contestants import Open, emptied_opener, open_memory, open_sqlite
from tests.conformance.declared_acts import EVENT_KEYS, EVENTS, PACES, Pace
from tests.conformance.keyed_acts import (
    DIVIDED,
    KEY_CHANGES,
    KEYS,
    NODES,
    NUMBERS,
    OWNERS,
    PARAMS,
    PIDS,
    PLACES,
    KeyedActs,
)
from tests.conformance.keyed_walk import KeyedWalk
from tests.conformance.scarce_acts import (
    BATCH_ACTS,
    CHANGES,
    LANES,
    LEASES,
    MEMBERS,
    NEW_MEMBERS,
    REPORTS,
    RULES,
    WANTS,
)
from tests.conformance.walk import Walk

EXAMPLES = {"memory": 40, "sqlite": 12, "postgres": 4}
STEPS_OF_WALK = {"memory": 400, "sqlite": 300, "postgres": 150}
PROMPT = ("memory", "sqlite")
LONG = settings.get_current_profile_name() == "long"
options = st.fixed_dictionaries(
    {"handler": st.sampled_from("aaabbcr"), "queue": st.sampled_from(QUEUES)},
    optional={
        "priority": st.sampled_from([-1, 0, 1]),
        "delay": st.sampled_from([0, 1, SECOND, 5 * SECOND, 20 * SECOND]),
        "unique": st.builds(Unique, st.sampled_from(["k1", "k2"]), st.sampled_from(PERIODS)),
        "max_attempts": st.sampled_from([1, 2]),
        "expires_in": st.sampled_from([1, SECOND, 15 * SECOND]),
        "tags": st.sampled_from([(), ("t1",), ("t1", "u")]),
        "params": st.sampled_from(PARAMS),
        "timeout": st.just(SECOND),
        "want": st.sampled_from(WANTS),
        "order_key": st.sampled_from(["o1", "o2"]),
    },
)
places = st.sampled_from([None, None, QUEUES, ("q1",), ("q2", "q3"), ("q3", "q3"), ("q1", "q5"), ()])
numbers = st.sampled_from(NUMBERS)
managers_slots = st.builds(
    Slot, free=st.sampled_from([3, 1, 0]), ahead=st.sampled_from([0, 0, 2]), queues=places, number=numbers
)
remote_slots = st.builds(
    Slot,
    number=numbers,
    free=st.sampled_from([3, 1, 0]),
    queues=places,
    worker=st.sampled_from(["", "w1", "w2"]),
    handlers=st.sampled_from(NARROWED),
    order=st.sampled_from(ORDERS),
    lasts=st.sampled_from(LASTS),
    repeat=st.sampled_from(REPEATED),
)
slots = managers_slots | remote_slots
requests = st.tuples(
    st.lists(slots, min_size=1, max_size=3).map(tuple),
    st.sampled_from([None, None, "abc", "ab", "a"]).map(lambda names: names and frozenset(names)),
)
filters = st.sampled_from(FILTERS).map(parsed)
limits = st.sampled_from([1000, 1000, 2])
picks = st.integers(0, 1_000_000)
words = st.tuples(
    st.sampled_from(WORDS),
    st.none() | options,
    st.sampled_from([None, 0, 10]),
    st.sampled_from([None, "w1"]),
    st.sampled_from(REPORTS),
)
changes = st.one_of(
    st.builds(
        QueueChange,
        paused=st.booleans(),
        by=st.sampled_from([None, "ann"]),
        reason=st.sampled_from([None, "", "down"]),
    ),
    st.builds(QueueChange, capacity=st.sampled_from([None, 1, 3])),
    st.builds(QueueChange, rate=st.sampled_from(RATES).map(rate)),
    st.builds(QueueChange, max_per_key=st.sampled_from([None, 1, 2])),
    st.just(QueueChange(withdraw=("max_per_key",))),
    st.just(QueueChange(paused=False, capacity=None)),
)
infos = st.builds(
    SessionInfo,
    host=st.just("h"),
    pid=st.sampled_from(PIDS),
    handlers=st.sampled_from([("a", "b"), ("a",), ("c",), ()]),
    ttl=st.sampled_from([5 * SECOND, 15 * SECOND, 3600 * SECOND]),
)


key_owners = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(OWNERS), max_size=3)


class Equivalence(RuleBasedStateMachine):
    """Hypothesis leaves kinds of acts out at random, so acts that need each other share a rule."""

    engines: ClassVar[dict[str, Open]] = {}
    prompt: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.acts = KeyedActs(self.engines, prompt=self.prompt)

    def teardown(self) -> None:
        self.acts.end()

    @initialize()
    def begin(self) -> None:
        self.acts.begin()

    @rule(chosen=st.lists(options, min_size=1, max_size=4), repeat=st.none() | picks, parent=st.none() | picks)
    def put(self, chosen: list[dict[str, Any]], repeat: int | None, parent: int | None) -> None:
        self.acts.put(chosen, repeat, parent)

    @rule(who=picks, request=requests, word=words)
    def work(self, who: int, request: tuple[Any, Any], word: Any) -> None:
        self.acts.work(who, request, word)

    @rule(chosen=st.lists(options, min_size=1, max_size=3), request=requests, word=words)
    def put_and_work(self, chosen: list[dict[str, Any]], request: tuple[Any, Any], word: Any) -> None:
        self.acts.put(chosen, None, None)
        self.acts.work(0, request, word)

    @rule(who=picks, request=requests)
    def claim(self, who: int, request: tuple[Any, Any]) -> None:
        self.acts.claim(who, request)

    @rule(said=st.lists(st.tuples(picks, st.booleans(), words), min_size=1, max_size=4))
    def say_of_any_claim(self, said: list[tuple[int, bool, Any]]) -> None:
        self.acts.say_of_any_claim(said)

    @precondition(lambda self: self.acts.claims)
    @rule(which=picks, word=words, who=picks, number=st.integers(0, 3))
    def say_with_a_forged_token(self, which: int, word: Any, who: int, number: int) -> None:
        self.acts.say_with_a_forged_token(which, word, who, number)

    @rule(who=picks, act=st.sampled_from(["renew", "renew", "end", "open", "reclaim"]), info=infos)
    def live(self, who: int, act: str, info: SessionInfo) -> None:
        self.acts.live(who, act, info)

    @rule(who=picks, act=st.sampled_from(["campaign", "campaign", "resign", "prune"]), back=st.sampled_from([0, 0, 1]))
    def lead(self, who: int, act: str, back: int) -> None:
        self.acts.lead(who, act, back)

    @rule(
        wanted=filters,
        act=st.sampled_from(["cancel", "retry", "retry", "change", "change", "prune", "read"]),
        limit=limits,
        choice=st.booleans(),
        age=st.sampled_from([None, 0, 5 * SECOND]),
    )
    def operate(self, wanted: Filter, act: str, limit: int, choice: bool, age: int | None) -> None:
        self.acts.operate(wanted, act, limit, choice, age)

    @rule(
        act=st.sampled_from(["queue", "queue", "register", "forget", "wish"]),
        queue=st.sampled_from(QUEUES),
        change=changes,
        names=st.lists(st.sampled_from(HANDLERS), max_size=2),
    )
    def configure(self, act: str, queue: str, change: QueueChange, names: list[str]) -> None:
        self.acts.configure(act, queue, change, names)

    @rule(
        act=st.sampled_from(["remember", "add", "revoke", "change"]),
        which=picks,
        queue=st.sampled_from(QUEUES),
        change=changes,
    )
    def access(self, act: str, which: int, queue: str, change: QueueChange) -> None:
        self.acts.access(act, which, queue, change)

    @rule(act=st.sampled_from(["record", "record", "read", "prune", "prune audit"]), which=picks)
    def happen(self, act: str, which: int) -> None:
        self.acts.happen(act, which)

    @rule(
        chosen=st.lists(options, min_size=1, max_size=3),
        want=st.sampled_from(WANTS),
        free=st.sampled_from([1, 2, 4]),
        word=words,
    )
    def need_and_work(self, chosen: list[dict[str, Any]], want: Want | None, free: int, word: Any) -> None:
        self.acts.need(chosen, want)
        self.acts.work(0, ((Slot(free=free, ahead=1),), None), word)

    @rule(
        which=st.integers(0, len(RULES) - 1),
        names=st.none() | st.lists(st.sampled_from(MEMBERS), min_size=1, max_size=2, unique=True),
        options=st.sampled_from(NEW_MEMBERS),
        change=st.sampled_from(CHANGES),
        act=st.sampled_from(["declare", "limit", "add", "change"]),
    )
    def pool(
        self, which: int, names: list[str] | None, options: dict[str, Any], change: ResourceChange | None, act: str
    ) -> None:
        match act:
            case "declare":
                self.acts.declare(which)
            case "limit":
                self.acts.limit(which)
            case "add":
                self.acts.add([(name, options) for name in names or ["m1"]])
            case _:
                self.acts.change(names, change)

    @rule(
        act=st.sampled_from(["acquire", "acquire", "release", "extend", "use", "move", "end", "again"]),
        lease=st.sampled_from(LEASES),
        want=st.sampled_from(WANTS),
        report=st.sampled_from(REPORTS),
        which=picks,
    )
    def lease(self, act: str, lease: str, want: Want | None, report: Report | None, which: int) -> None:
        if act == "again":
            self.acts.use_again(which)
        else:
            self.acts.lease(act, lease, want, report)

    @rule(
        chosen=st.lists(options, max_size=4),
        lane=st.sampled_from(LANES),
        again=st.none() | picks,
        notice=st.booleans(),
    )
    def create_batch(self, chosen: list[dict[str, Any]], lane: str, again: int | None, notice: bool) -> None:
        self.acts.create_batch(chosen, lane, again, notice)

    @rule(which=picks, act=st.sampled_from(BATCH_ACTS), limit=limits)
    def act_on_batch(self, which: int, act: BatchAct, limit: int) -> None:
        self.acts.act_on_batch(which, act, limit)

    @rule(lane=st.sampled_from(LANES), most=st.integers(1, 3))
    def change_lane(self, lane: str, most: int) -> None:
        self.acts.change_lane(lane, most)

    @rule(which=picks, who=st.none() | picks, routes=picks)
    def declare_app(self, which: int, who: int | None, routes: int) -> None:
        self.acts.declare_app(which, who)
        self.acts.route(routes)

    @rule(
        chosen=st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from(EVENT_KEYS)), min_size=1, max_size=3),
        again=st.none() | picks,
    )
    def publish(self, chosen: list[tuple[str, str | None]], again: int | None) -> None:
        self.acts.publish(chosen, again)

    @rule(
        act=st.sampled_from(["begin", "advance", "advance", "advance", "change", "forget"]),
        which=picks,
        options=st.tuples(st.sampled_from(list(Verb)), st.sampled_from(FILTERS), st.sampled_from(PACES)),
        limit=st.sampled_from([100, 1, 2]),
    )
    def act_in_portions(self, act: str, which: int, options: tuple[Verb, str, Pace], limit: int) -> None:
        self.acts.act_in_portions(act, which, options, limit)

    @rule(act=st.sampled_from(["put", "change", "fire", "fire", "prune"]), which=picks, step=st.sampled_from(STEPS))
    def schedule(self, act: str, which: int, step: str) -> None:
        self.acts.time_passes(step)
        self.acts.schedule(act, which)

    @rule(act=st.sampled_from(["note", "note", "silence", "end"]), which=picks)
    def alert(self, act: str, which: int) -> None:
        self.acts.alert(act, which)

    @rule(which=picks, who=picks, places=st.sampled_from(PLACES), owners=key_owners)
    def divide(self, which: int, who: int, places: tuple[int, ...], owners: dict[str, str]) -> None:
        self.acts.divide(which, who)
        self.acts.share_out(who, places, owners)

    @rule(who=picks, node=st.sampled_from(NODES), places=st.sampled_from(PLACES), which=picks)
    def seat(self, who: int, node: str, places: tuple[int, ...], which: int) -> None:
        self.acts.seat(who, node, places, which)

    @rule(
        queue=st.sampled_from(DIVIDED),
        owners=key_owners,
        back=st.sampled_from([0, 0, 0, 1]),
        key=st.sampled_from(KEYS),
        change=st.none() | st.sampled_from(KEY_CHANGES),
    )
    def assign(self, queue: str, owners: dict[str, str], back: int, key: str, change: PartitionChange | None) -> None:
        if change is None:
            self.acts.assign(queue, owners, back)
        else:
            self.acts.change_key(queue, key, change)

    @rule(chosen=st.lists(options, min_size=1, max_size=4), which=picks, request=requests, word=words)
    def put_keyed_and_work(self, chosen: list[dict[str, Any]], which: int, request: tuple[Any, Any], word: Any) -> None:
        self.acts.put_keyed(chosen, which)
        self.acts.work(0, request, word)

    @rule(step=st.sampled_from(STEPS))
    def time_passes(self, step: str) -> None:
        self.acts.time_passes(step)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def contestant(request: pytest.FixtureRequest) -> tuple[str, Open]:
    """Every engine meets the oracle; a second memory engine proves that nothing in the comparison is left to chance."""
    if request.param == "postgres":
        return "postgres", emptied_opener(request.getfixturevalue("emptied_schema"))
    return request.param, {"memory": open_memory, "sqlite": open_sqlite}[request.param]


@pytest.mark.timeout(0 if LONG else 120)
def test_any_acts_in_any_order(contestant: tuple[str, Open]) -> None:
    name, opening = contestant

    class Match(Equivalence):
        engines: ClassVar[dict[str, Open]] = {"oracle": open_memory, name: opening}
        prompt: ClassVar[bool] = name in PROMPT

    run_state_machine_as_test(
        Match,
        settings=settings(
            max_examples=20_000 if LONG else EXAMPLES[name],
            stateful_step_count=60 if LONG else 25,
            derandomize=not LONG,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(0 if LONG else 120)
@pytest.mark.parametrize("walk", [Walk, KeyedWalk])
@pytest.mark.parametrize("seed", range(1000 if LONG else 2))
def test_a_long_walk(contestant: tuple[str, Open], seed: int, walk: type[Walk] | type[KeyedWalk]) -> None:
    name, opening = contestant
    acts = KeyedActs({"oracle": open_memory, name: opening}, prompt=name in PROMPT)
    try:
        walk(acts, seed).go(STEPS_OF_WALK[name])
    finally:
        acts.end()
