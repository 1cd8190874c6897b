"""All engines are one engine: the same random acts, equal answers and equal stores after every one.

`--hypothesis-profile=long` looks for hours instead of seconds.
"""

from random import Random
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from pitboss.engines.protocol import Settlement
from pitboss.model.filter import Filter, parsed
from pitboss.model.ids import IdMaker
from pitboss.model.limits import rate
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.session import Claimed, ClaimRequest, Session, SessionInfo, Slot
from pitboss.model.task import Claim, NewTask, Token, Unique
from pitboss.testing.conformance import Store
from pitboss.testing.conformance.outcomes import FINAL, OUTCOMES, transition_for
from tests.conformance.arena import Arena
from tests.conformance.contestants import CONTESTANTS, ORACLE, Open

LONG = settings.get_current_profile_name() == "long"
HANDLERS = ("a", "b", "c")
QUEUES = ("q1", "q2", "q3")
SECOND = 1_000_000
PERIODS = [None, None, 5 * SECOND, 60 * SECOND]
STEPS = ["1us", "999999us", "1s", "4999999us", "5s", "16s", "61m"]
FILTERS = [
    "",
    "queue:q1",
    "state:failed,cancelled",
    "task:a -queue:q2",
    "args.n:1",
    "tag:t*",
    "attempts:>0",
    "priority:<1",
    "reason:*",
    "wait:>1s",
    "losses:>0",
    "key:k1",
]

options = st.fixed_dictionaries(
    {"handler": st.sampled_from("aaabbc"), "queue": st.sampled_from(QUEUES)},
    optional={
        "priority": st.sampled_from([-1, 0, 1]),
        "delay": st.sampled_from([0, 1, SECOND, 5 * SECOND, 20 * SECOND]),
        "unique": st.builds(Unique, st.sampled_from(["k1", "k2"]), st.sampled_from(PERIODS)),
        "max_attempts": st.sampled_from([1, 2]),
        "expires_in": st.sampled_from([1, SECOND, 15 * SECOND]),
        "tags": st.sampled_from([(), ("t1",), ("t1", "u")]),
        "params": st.sampled_from(['{"n":1}', '{"n":"1"}', "[]", '"é"']),
        "timeout": st.just(SECOND),
    },
)
slots = st.builds(
    Slot,
    free=st.sampled_from([3, 1, 0]),
    ahead=st.sampled_from([0, 0, 2]),
    queues=st.sampled_from([None, None, QUEUES, ("q1",), ("q2", "q3"), ("q3", "q3"), ()]),
)
requests = st.tuples(
    st.lists(slots, min_size=1, max_size=3).map(tuple),
    st.sampled_from([None, None, "abc", "ab", "a"]).map(lambda names: names and frozenset(names)),
)
filters = st.sampled_from(FILTERS).map(parsed)
limits = st.sampled_from([1000, 1000, 2])
picks = st.integers(0, 1_000_000)
words = st.tuples(
    st.sampled_from(OUTCOMES),
    st.none() | options,
    st.sampled_from([None, 0, 10]),
    st.sampled_from([None, "w1"]),
)
changes = st.one_of(
    st.builds(QueueChange, paused=st.booleans(), by=st.sampled_from([None, "ann"])),
    st.builds(QueueChange, capacity=st.sampled_from([None, 1, 3])),
    # One longest window for all: what a queue remembers of its past is then the same whoever changes what.
    st.builds(QueueChange, rate=st.sampled_from(["1/5s", "3/5s", "1/1s,2/5s"]).map(rate)),
    st.just(QueueChange(paused=False, capacity=None)),
)
infos = st.builds(
    SessionInfo,
    host=st.just("h"),
    handlers=st.sampled_from([("a", "b"), ("a",), ("c",), ()]),
    ttl=st.sampled_from([5 * SECOND, 15 * SECOND, 3600 * SECOND]),
)


class Equivalence(RuleBasedStateMachine):
    """The acts. What was put, claimed and opened is remembered, so that acts may be repeated and writers be stale.

    Acts that belong together share a rule: hypothesis leaves rules out at random, and what is left must still work.
    """

    engines: ClassVar[dict[str, Open]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.arena = Arena(self.engines)
        self.ids = IdMaker(self.arena.clock.now, Random(3).getrandbits)
        self.known: list[NewTask] = []
        self.claims: list[Claim] = []
        self.sessions: list[Session] = []

    def teardown(self) -> None:
        try:
            self.arena.compare_the_rest()
        finally:
            self.arena.close()

    @initialize()
    def begin(self) -> None:
        self._register(["a", "b"])
        for handlers, ttl in ((("a", "b"), 3600), (("a",), 15), ((), 3600)):
            self._open_session(SessionInfo(host="h", handlers=handlers, ttl=ttl * SECOND))

    @rule(chosen=st.lists(options, min_size=1, max_size=4), repeat=st.none() | picks, parent=st.none() | picks)
    def put(self, chosen: list[dict[str, Any]], repeat: int | None, parent: int | None) -> None:
        tasks = [NewTask(id=self.ids(), parent=self._id(parent), **one) for one in chosen]
        if repeat is not None and self.known:
            tasks.insert(repeat % len(tasks), self.known[repeat % len(self.known)])
        self.arena.act(lambda store: store.put(tasks))
        self.known += tasks

    @rule(who=picks, request=requests, word=words)
    def work(self, who: int, request: tuple[Any, Any], word: Any) -> None:
        """Claim, and say the same of all that was claimed."""
        self.settle([self._settlement(claim, *word) for claim in self._claim(who, request)])

    @rule(chosen=st.lists(options, min_size=1, max_size=3), request=requests, word=words)
    def put_and_work(self, chosen: list[dict[str, Any]], request: tuple[Any, Any], word: Any) -> None:
        self.put(chosen, None, None)
        self.work(0, request, word)

    @rule(who=picks, request=requests)
    def claim(self, who: int, request: tuple[Any, Any]) -> None:
        self._claim(who, request)

    @rule(said=st.lists(st.tuples(picks, st.booleans(), words), min_size=1, max_size=4))
    def say_of_any_claim(self, said: list[tuple[int, bool, Any]]) -> None:
        """Settle claims that may be over long since, several times in one call."""
        pools = [(self.claims[-3:] if recent else self.claims, which, word) for which, recent, word in said]
        self.settle([self._settlement(pool[which % len(pool)], *word) for pool, which, word in pools if pool])

    @precondition(lambda self: self.claims)
    @rule(which=picks, word=words, who=picks, number=st.integers(0, 3))
    def say_with_a_forged_token(self, which: int, word: Any, who: int, number: int) -> None:
        known = self.claims[which % len(self.claims)]
        forged = msgspec.structs.replace(known, token=Token(self._session(who), number))
        self.settle([self._settlement(forged, *word)])

    @rule(who=picks, act=st.sampled_from(["renew", "renew", "end", "open", "reclaim"]), info=infos)
    def live(self, who: int, act: str, info: SessionInfo) -> None:
        number = self._session(who)
        match act:
            case "renew":
                self.arena.act(lambda store: store.renew(number, f'{{"w":{who}}}' if who % 2 else None))
            case "end":
                self.arena.act(lambda store: store.end_session(number))
            case "open":
                self._open_session(info)
        self.arena.act(lambda store: store.reclaim())

    @rule(
        wanted=filters,
        act=st.sampled_from(["cancel", "retry", "retry", "prune", "read"]),
        limit=limits,
        choice=st.booleans(),
        age=st.sampled_from([None, 0, 5 * SECOND]),
    )
    def operate(self, wanted: Filter, act: str, limit: int, choice: bool, age: int | None) -> None:
        match act:
            case "cancel":
                self.arena.act(lambda store: store.cancel(wanted, reason="told so" * choice, limit=limit))
            case "retry":
                self.arena.act(lambda store: store.retry(wanted, keep_attempts=choice, limit=limit), revived=True)
            case "prune":
                before = None if age is None else self.arena.clock.now() - age
                self.arena.act(lambda store: store.prune(wanted, before=before, limit=limit))
            case "read":
                self.arena.act(lambda store: _two_pages(store, wanted, choice))

    @rule(
        act=st.sampled_from(["queue", "queue", "register", "forget", "wish"]),
        queue=st.sampled_from(QUEUES),
        change=changes,
        names=st.lists(st.sampled_from(HANDLERS), max_size=2),
    )
    def configure(self, act: str, queue: str, change: QueueChange, names: list[str]) -> None:
        match act:
            case "queue":
                self.arena.act(lambda store: store.change_queue(queue, change))
            case "register":
                self._register(names)
            case "forget":
                self.arena.act(lambda store: store.forget(names))
            case "wish":
                self.arena.act(lambda store: store.wish(queue, change.by and "1", by=change.by))

    @rule(step=st.sampled_from(STEPS))
    def time_passes(self, step: str) -> None:
        self.arena.clock.advance(step)

    def settle(self, settlements: list[Settlement]) -> None:
        self.arena.act(lambda store: store.settle(settlements))

    def _claim(self, who: int, asked: tuple[Any, Any]) -> list[Claim]:
        request = ClaimRequest(session=self._session(who), slots=asked[0], handlers=asked[1])
        claimed = self.arena.act(lambda store: store.claim(request))
        claims = claimed.claims if isinstance(claimed, Claimed) else []
        self.claims += claims
        return claims

    def _settlement(
        self, claim: Claim, name: str, follow: dict[str, Any] | None, ran: int | None, worker: str | None
    ) -> Settlement:
        follow_ups = (NewTask(id=self.ids(), parent=claim.id, **follow),) if follow and name in FINAL else ()
        self.known += follow_ups
        transition = transition_for(name, claim, self.arena.clock.now(), follow_ups)
        return Settlement(id=claim.id, token=claim.token, transition=transition, worker=worker, ran=ran)

    def _register(self, names: list[str]) -> None:
        self.arena.act(lambda store: store.register([HandlerInfo(name=name) for name in names]))

    def _open_session(self, info: SessionInfo) -> None:
        self.sessions.append(self.arena.act(lambda store: store.open_session(info)))

    def _session(self, pick: int) -> int:
        return self.sessions[pick % len(self.sessions)].number

    def _id(self, pick: int | None) -> str | None:
        return self.known[pick % len(self.known)].id if self.known and pick is not None else None


async def _two_pages(store: Store, wanted: Filter, oldest_first: bool) -> list[Any]:
    first = await store.find(wanted, limit=3, oldest_first=oldest_first)
    count = await store.count(wanted)
    if first.next is None:
        return [first.tasks, count]
    rest = await store.find(wanted, limit=3, oldest_first=oldest_first, after=first.next)
    return [first.tasks, count, rest.tasks, rest.next is None]


@pytest.mark.timeout(0 if LONG else 120)
@pytest.mark.parametrize("name", CONTESTANTS)
def test_every_engine_is_the_oracle(name: str) -> None:
    class Match(Equivalence):
        engines: ClassVar[dict[str, Open]] = {"oracle": ORACLE, name: CONTESTANTS[name]}

    run_state_machine_as_test(
        Match,
        settings=settings(
            max_examples=20_000 if LONG else 60,
            stateful_step_count=60 if LONG else 40,
            derandomize=not LONG,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
