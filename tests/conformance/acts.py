"""Everything that can be done to a store, done to several engines at once.

What was put, claimed and opened is remembered, so that acts may be repeated and writers be stale.
"""

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import msgspec

from pitboss.engines.protocol import FullStore
from pitboss.model.access import ApiKey, AuditEntry, Role
from pitboss.model.filter import EVERYTHING, Filter
from pitboss.model.happening import Happening, Kind, happening
from pitboss.model.ids import IdMaker, TaskId
from pitboss.model.outcome import Transition, progressed
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.resource import Report, UseEnd
from pitboss.model.session import Claimed, ClaimRequest, Lead, Order, Session, SessionInfo
from pitboss.model.settlement import Settlement
from pitboss.model.task import Claim, NewTask, TaskChange, Token
from pitboss.testing.conformance.outcomes import FINAL, OUTCOMES, transition_for
from tests.conformance.arena import Arena
from tests.conformance.contestants import Open

# The handler that needs a member, its queue and its pool.
FETCH, BOUND, POOL = "f", "q4", "p"
# The handler that remote workers run, and its queue.
REMOTE, AFAR = "r", "q5"
HANDLERS = ("a", "b", "c", REMOTE)
QUEUES = ("q1", "q2", "q3", BOUND, AFAR)
SECOND = 1_000_000
SIGN_OF_LIFE = "sign of life"
WORDS = (*OUTCOMES, SIGN_OF_LIFE)
# What a slot of remote workers may say beside how many tasks it wants, of which queues.
ORDERS = [None, None, Order("created_at", descending=True), Order("attempts"), Order("priority", descending=True)]
LASTS = [None, SECOND, 5 * SECOND, 20 * SECOND]
NARROWED = [None, None, ("a",), ("b", REMOTE), (REMOTE,)]
REPEATED = [None, "r1", "r2"]
PERIODS = [None, None, 5 * SECOND, 60 * SECOND]
# One longest window for all: a queue then remembers the same past, whichever act changes its rate.
RATES = ["1/5s", "3/5s", "1/1s,2/5s"]
CHANGES_OF_TASKS = [
    TaskChange(priority=1),
    *(TaskChange(priority=n, tag=("u",), untag=("t1",)) for n in (0, -1)),
    *(TaskChange(tag=("t1",)), TaskChange(untag=("u", "t1"))) * 3,
]
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
    "queue:q4",
    "age:<16s",
    "finished:<16s",
    "state:completed finished:>1s",
    "ran:>1s",
    "order:*",
    "state:failed fingerprint:*",
    "state:failed task:a",
    "state:held reason:handler",
    "-state:completed,pending",
    "state:pending queue:q1,q2",
]


class Acts:
    """Picks are any numbers: they are taken modulo what there is."""

    def __init__(self, engines: dict[str, Open], *, prompt: bool = True) -> None:
        """Not `prompt`: an engine may cancel expired tasks, hold those of unknown handlers and put follow-ups of one
        call in another order than the oracle. The contract leaves that open; such acts are left out then."""
        self.arena = Arena(engines)
        self.prompt = prompt
        self.ids = IdMaker(self.arena.clock.now, Random(3).getrandbits)
        self.known: list[NewTask] = []
        self.claims: list[Claim] = []
        self.sessions: list[Session] = []
        self.keys: list[str] = []
        self.happenings: list[Happening] = []
        self.term = 0

    def end(self) -> None:
        try:
            self.arena.compare_the_rest()
        finally:
            self.arena.close()

    def begin(self) -> None:
        self._register(["a", "b", REMOTE])
        bound = HandlerInfo(name=FETCH, queue=BOUND, resources=POOL)
        self.arena.act(lambda store: store.register([bound]))
        for handlers, ttl in ((("a", "b", FETCH), 3600), (("a",), 15), ((), 3600)):
            self._open_session(SessionInfo(host="h", handlers=handlers, ttl=ttl * SECOND))

    def put(self, chosen: list[dict[str, Any]], repeat: int | None, parent: int | None) -> None:
        tasks = [self._new(one, self._id(parent)) for one in chosen]
        if repeat is not None and self.known:
            tasks.insert(repeat % len(tasks), self.known[repeat % len(self.known)])
        self.arena.act(lambda store: store.put(tasks))
        self.known += tasks

    def work(self, who: int, request: tuple[Any, Any], word: Any) -> None:
        """Claim, and say the same of all that was claimed."""
        self.settle([self._settlement(claim, *word) for claim in self._claim(who, request)])

    def put_and_work(self, chosen: list[dict[str, Any]], request: tuple[Any, Any], word: Any) -> None:
        self.put(chosen, None, None)
        self.work(0, request, word)

    def claim(self, who: int, request: tuple[Any, Any]) -> None:
        self._claim(who, request)

    def say_of_any_claim(self, said: list[tuple[int, bool, Any]]) -> None:
        """Settle claims that may be over long since, several times in one call."""
        pools = [(self.claims[-3:] if recent else self.claims, which, word) for which, recent, word in said]
        self.settle([self._settlement(pool[which % len(pool)], *word) for pool, which, word in pools if pool])

    def say_with_a_forged_token(self, which: int, word: Any, who: int, number: int) -> None:
        known = self.claims[which % len(self.claims)]
        forged = msgspec.structs.replace(known, token=Token(self._session(who), number))
        self.settle([self._settlement(forged, *word)])

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

    def lead(self, who: int, act: str, back: int) -> None:
        """`back` terms before the newest one that was heard of."""
        number, term = self._session(who), self.term - back
        match act:
            case "campaign":
                told = self.arena.act(lambda store: store.campaign(number))
                self.term = told.term if isinstance(told, Lead) else self.term
            case "resign":
                self.arena.act(lambda store: store.resign(number))
            case "prune":
                self.arena.act(lambda store: store.prune(EVERYTHING, term=term))
        self.arena.act(lambda store: store.leader())

    def operate(self, wanted: Filter, act: str, limit: int, choice: bool, age: int | None) -> None:
        match act:
            case "cancel":
                self.arena.act(lambda store: store.cancel(wanted, reason="told so" * choice, limit=limit))
            case "retry":
                self.arena.act(lambda store: store.retry(wanted, keep_attempts=choice, limit=limit), revived=True)
            case "change":
                change = CHANGES_OF_TASKS[limit % 7 + (age or 0) // SECOND % 2]
                self.arena.act(lambda store: store.change_tasks(wanted, change, limit=limit))
            case "prune":
                before = None if age is None else self.arena.clock.now() - age
                # Which tasks a limit leaves is the engine's choice, so there is none here.
                self.arena.act(lambda store: store.prune(wanted, before=before))
            case "read":
                self.arena.act(lambda store: _two_pages(store, wanted, choice))
                if self.known:
                    one = self.known[limit % len(self.known)].id
                    self.arena.act(lambda store: store.tasks_before(one, limit=3))

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

    def access(self, act: str, which: int, queue: str, change: QueueChange) -> None:
        """What the HTTP API keeps: keys, what operators did, and requests that may be repeated."""
        name = f"k{which % 3}"
        match act:
            case "remember":
                self.arena.act(lambda store: store.remember(name, f"body {which}", [name, str(which)]))
            case "add":
                key = ApiKey(id=self.ids(), name=name, digest="d", roles=(Role.WORKER,), created_by="ann")
                self.keys.append(key.id)
                self._audited("add", lambda store: store.add_key(key))
            case "revoke" if self.keys:
                key_id = self.keys[which % len(self.keys)]
                self._audited("revoke", lambda store: store.revoke_key(key_id))
            case _:
                self._audited("queue", lambda store: store.change_queue(queue, change))

    def happen(self, act: str, which: int) -> None:
        """What happened is recorded, read and pruned. A call may repeat what an earlier one recorded."""
        now, term = self.arena.clock.now(), self.term - (which % 5 == 0)
        kind, subject = list(Kind)[which % 4], f"pool {which % 3}"
        match act:
            case "record":
                made = happening(self.ids(), now, kind, subject, f"number {which}", count=which % 7 + 1)
                self.happenings.append(made)
                some = [made, *self.happenings[-(which % 3) - 1 :]]
                self.arena.act(lambda store: store.record_happenings(some))
            case "read":
                since = None if which % 2 else now - 10 * SECOND
                kinds = list(Kind)[: which % 3]
                self.arena.act(lambda store: store.happenings(limit=5, since=since, kinds=kinds, subject=subject[:-1]))
            case "prune":
                keep = which % 4 + 2
                self.arena.act(lambda s: s.prune_happenings(now - 30 * SECOND, keep=keep, limit=3, term=term))
            case _:
                self.arena.act(lambda store: store.prune_audit(now - 5 * SECOND, limit=3, term=term))

    def _audited(self, name: str, act: Callable[[FullStore], Awaitable[Any]]) -> None:
        entry = AuditEntry(id=self.ids(), who="ann", act=name)
        self.arena.act(lambda store: act(store.audited(entry)))

    def time_passes(self, step: str) -> None:
        self.arena.clock.advance(step)

    def settle(self, settlements: list[Settlement]) -> None:
        self.arena.act(lambda store: store.settle(settlements))

    def _claim(self, who: int, asked: tuple[Any, Any]) -> list[Claim]:
        request = ClaimRequest(session=self._session(who), slots=asked[0], handlers=asked[1] if self.prompt else None)
        claimed = self.arena.act(lambda store: store.claim(request))
        claims = claimed.claims if isinstance(claimed, Claimed) else []
        self.claims += claims
        return claims

    def _settlement(
        self,
        claim: Claim,
        name: str,
        follow: dict[str, Any] | None,
        ran: int | None,
        worker: str | None,
        report: Report | None = None,
    ) -> Settlement:
        if follow and not self.prompt:
            follow = {option: value for option, value in follow.items() if option != "unique"}
        follow_ups = (self._new(follow, claim.id),) if follow and name in FINAL else ()
        self.known += follow_ups
        transition = progressed() if name == SIGN_OF_LIFE else self._transition(name, claim, follow_ups)
        # Those that report on their member know that its use is over.
        end = None if claim.leased is None or report is None else UseEnd(claim.leased.use_at)
        return Settlement(
            id=claim.id, token=claim.token, transition=transition, worker=worker, ran=ran, report=report, use_end=end
        )

    def _transition(self, name: str, claim: Claim, follow_ups: tuple[NewTask, ...]) -> Transition:
        return transition_for(name, claim, self.arena.clock.now(), follow_ups)

    def _new(self, options: dict[str, Any], parent: TaskId | None) -> NewTask:
        kept = {name: value for name, value in options.items() if self.prompt or name != "expires_in"}
        return NewTask(id=self.ids(), parent=parent, **kept)

    def _register(self, names: list[str]) -> None:
        plain = [HandlerInfo(name=name) for name in names if name != REMOTE]
        remote = [HandlerInfo(name=REMOTE, queue=AFAR, remote=True)] if REMOTE in names else []
        self.arena.act(lambda store: store.register([*plain, *remote]))

    def _open_session(self, info: SessionInfo) -> None:
        self.sessions.append(self.arena.act(lambda store: store.open_session(info)))

    def _session(self, pick: int) -> int:
        return self.sessions[pick % len(self.sessions)].number

    def _id(self, pick: int | None) -> str | None:
        return self.known[pick % len(self.known)].id if self.known and pick is not None else None


async def _two_pages(store: FullStore, wanted: Filter, oldest_first: bool) -> list[Any]:
    first = await store.find(wanted, limit=3, oldest_first=oldest_first)
    count = await store.count(wanted)
    if first.next is None:
        return [first.tasks, count]
    rest = await store.find(wanted, limit=3, oldest_first=oldest_first, after=first.next)
    return [first.tasks, count, rest.tasks, rest.next is None]
