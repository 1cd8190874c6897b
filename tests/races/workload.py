"""A seeded stream of everything that clients, managers, zombies and operators do to a store, in fake time.

The same stream runs against the correct engines, against engines with a planted bug, and with faults in them. It ends
with a full drain: faults are over, dead sessions are swept, every task that can run runs to its end.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from pitboss.engines.protocol import FullStore
from pitboss.model.duration import SECOND, span
from pitboss.model.errors import NotLeader, QueueFull, SessionLost, StoreUnavailable
from pitboss.model.filter import EVERYTHING, by
from pitboss.model.ids import IdMaker, millis_of
from pitboss.model.limits import rate
from pitboss.model.outcome import (
    Cancelled,
    Completed,
    Crashed,
    Failed,
    Outcome,
    Released,
    Retry,
    Snooze,
    TimedOut,
    decide,
    progressed,
)
from pitboss.model.policy import Backoff, Policy
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.session import ClaimRequest, Order, Session, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim, NewTask, TaskError, Unique
from pitboss.testing.checker import Violation, check, final
from pitboss.testing.clock import FakeClock
from pitboss.testing.failpoints import Killed
from pitboss.testing.history import History
from pitboss.testing.recorded import Recorded, recorded

Open = Callable[[FakeClock], Awaitable[FullStore]]
TTL = span("10s")
# How long a claim of a remote worker lasts without a sign of life.
REMOTE_TTL = span("6s")
POLICY = Policy(max_attempts=3, backoff=Backoff(base=2 * SECOND, factor=2.0, jitter=0.25))
BROKEN = TaskError(category="net", message="connection reset")
PLAIN, NARROW, RATED = "plain", "narrow", "rated"
CAPACITY = 5
RATE = "3/10s"
DRAIN_ROUNDS = 200


class Process:
    """One process: its engine, its session, what it holds, and what it may say again or too late."""

    def __init__(self, store: Recorded) -> None:
        self.store = store
        self.session: Session | None = None
        self.held: list[Claim] = []


Doing = Callable[[Process], Awaitable[None]]


class Workload:
    """One run with one seed."""

    handlers: tuple[str, ...] = ("job",)
    # The queues that remote workers ask for.
    remote_queues: tuple[tuple[str, ...], ...] = ((RATED,), (PLAIN, NARROW), (PLAIN,))

    def __init__(
        self,
        open_store: Open,
        seed: int,
        *,
        clock: FakeClock | None = None,
        heal: Callable[[], None] = lambda: None,
    ) -> None:
        self.clock = clock or FakeClock()
        self.random = Random(seed)
        self.history = History()
        self._open, self._heal = open_store, heal
        self._ids = IdMaker(self.clock.now, self.random.getrandbits)
        self._stores: list[FullStore] = []
        self._processes: list[Process] = []
        self._put: list[NewTask] = []
        self._said: list[Settlement] = []
        self._zombies: list[Claim] = []
        self._terms: list[int] = []
        # What remote workers hold, whichever process asked for it, and what they asked last.
        self._afar: list[Claim] = []
        self._asked: tuple[Slot, ...] = ()
        self._deaths = 0

    async def run(self, steps: int = 120) -> list[Violation]:
        """Do a number of random things, drain, and let the checker judge."""
        try:
            self._processes = [await self._born("p1"), await self._born("p2")]
            await self._prepare()
            for _ in range(steps):
                await self._step()
            await self._drain()
            drained = self._processes[0].store
            return check(self.history, await final(drained)) + await self._unfinished(drained)
        finally:
            for store in self._stores:
                await store.close()

    async def _born(self, name: str) -> Process:
        store = await self._open(self.clock)
        if store not in self._stores:
            self._stores.append(store)
        return Process(recorded(store, self.history, name, clock=self.clock))

    async def _prepare(self) -> None:
        store = self._processes[0].store
        await store.register([HandlerInfo(name="job"), HandlerInfo(name="rare")])
        await store.change_queue(NARROW, QueueChange(capacity=CAPACITY))
        await store.change_queue(RATED, QueueChange(rate=rate(RATE)))

    async def _step(self) -> None:
        doings = self._doings()
        doing = self.random.choices([do for _, do in doings], [weight for weight, _ in doings])[0]
        index = self.random.randrange(len(self._processes))
        await self._do(index, doing)

    def _doings(self) -> list[tuple[int, Doing]]:
        """What is done, and how often."""
        return [
            (16, self._puts),
            (3, self._puts_again),
            (5, self._puts_race),
            (20, self._claims),
            (5, self._claims_race),
            (24, self._settles),
            (5, self._reports),
            (4, self._repeats),
            (6, self._speaks_too_late),
            (6, self._renews),
            (4, self._reclaims),
            (3, self._goes_and_comes),
            (1, self._dies),
            (2, self._operator_cancels),
            (3, self._operator_retries),
            (1, self._operator_prunes),
            (6, self._campaigns),
            (3, self._campaigns_race),
            (1, self._resigns),
            (4, self._leader_prunes),
            (14, self._time_passes),
            (2, self._time_flies),
            *(self._remote_doings() if self.remote_queues else ()),
        ]

    def _remote_doings(self) -> list[tuple[int, Doing]]:
        return [(6, self._claims_from_afar), (6, self._settles_from_afar), (4, self._gives_a_sign_of_life)]

    async def _do(self, index: int, doing: Doing) -> None:
        process = self._processes[index]
        try:
            if process.session is None:
                process.session = await self._session(process)
            await doing(process)
        except SessionLost:
            self._lost(process)
        except (StoreUnavailable, NotLeader):
            pass
        except Killed:
            await self._reborn(index)

    async def _session(self, process: Process) -> Session:
        return await process.store.open_session(
            SessionInfo(host=process.store.process, handlers=("rare", *self.handlers), ttl=TTL)
        )

    def _lost(self, process: Process) -> None:
        """The session is over; what it held may still be spoken for, too late."""
        self._zombies += process.held
        process.held, process.session = [], None

    async def _reborn(self, index: int) -> None:
        """A process died: nothing of it goes on, but another one starts in its place."""
        dead = self._processes[index]
        self._zombies += dead.held
        self._deaths += 1
        self._processes[index] = await self._born(f"p{index + 1}.{self._deaths}")

    def _new(self, **options: Any) -> NewTask:
        pick = self.random
        fields: dict[str, Any] = {
            "id": self._ids(),
            "handler": "job",
            "queue": pick.choice([PLAIN, PLAIN, NARROW, RATED, RATED]),
            "priority": pick.choice([0, 0, 0, -1, 1]),
            "params": f'{{"n":{len(self._put)}}}',
        }
        match pick.randrange(12):
            case 0 | 1 | 2:
                fields["unique"] = Unique(f"k{pick.randrange(3)}")
            case 3:
                fields["unique"] = Unique(f"p{pick.randrange(2)}", span("8s"))
            case 4 | 5:
                fields["delay"] = pick.randrange(1, 6) * SECOND
            case 6:
                fields["expires_in"] = pick.randrange(1, 10) * SECOND
            case _:
                pass
        return NewTask(**fields | options)

    async def _puts(self, process: Process) -> None:
        tasks = [self._new() for _ in range(self.random.choice([1, 1, 2, 3]))]
        self._put += tasks
        await self._put_safely(process, tasks)

    async def _put_safely(self, process: Process, tasks: list[NewTask]) -> None:
        try:
            await process.store.put(tasks)
        except QueueFull:
            return
        except StoreUnavailable:
            # What a client does that got no answer: the same ids again.
            if self.random.random() < 0.7:
                await self._put_safely(process, tasks)

    async def _puts_again(self, process: Process) -> None:
        """As after a lost answer: soon, while the task cannot have been pruned yet."""
        recent = [new for new in self._put[-12:] if millis_of(new.id) * 1000 > self.clock.now() - 4 * SECOND]
        if recent:
            await self._put_safely(process, [self.random.choice(recent)])

    async def _puts_race(self, process: Process) -> None:
        """Both processes at once, for the same key or for the last places of a queue."""
        key = Unique(f"k{self.random.randrange(3)}")
        options: dict[str, Any] = (
            {"unique": key, "queue": PLAIN} if self.random.random() < 0.5 else {"queue": NARROW, "unique": None}
        )
        groups = [[self._new(**options, delay=None, expires_in=None)] for _ in self._processes]
        await asyncio.gather(
            *(self._survives(self._put_safely(one, tasks)) for one, tasks in zip(self._processes, groups, strict=True))
        )

    async def _survives(self, work: Awaitable[object]) -> None:
        """One of several things at once: its process may die of it, which the next step will notice."""
        try:
            await work
        except (Killed, SessionLost, StoreUnavailable):
            return

    def _slots(self) -> tuple[Slot, ...]:
        pick = self.random
        queues = pick.choice([None, None, (RATED,), (RATED,), (PLAIN, NARROW), (NARROW,)])
        slots = [Slot(free=pick.randrange(1, 4), ahead=pick.choice([0, 0, 2]), queues=queues)]
        return (*slots, Slot(free=1)) if pick.random() < 0.2 else tuple(slots)

    async def _claims(self, process: Process) -> None:
        assert process.session is not None
        request = ClaimRequest(session=process.session.number, slots=self._slots(), handlers=frozenset(self.handlers))
        claimed = await process.store.claim(request)
        process.held += claimed.claims
        if not claimed.claims and claimed.next_due is not None and self.random.random() < 0.5:
            self.clock.advance_to(claimed.next_due)

    async def _claims_race(self, process: Process) -> None:
        live = [one for one in self._processes if one.session is not None]
        await asyncio.gather(*(self._survives(self._claims(one)) for one in live))

    async def _claims_from_afar(self, process: Process) -> None:
        """For remote workers; now and then once more, as after a lost answer, by any process."""
        assert process.session is not None
        pick = self.random
        if not self._asked or pick.random() < 0.7:
            wanted = (pick.choice(self.remote_queues), pick.choice([None, self.handlers]))
            self._asked = tuple(self._remote_slot(*wanted) for _ in range(pick.choice([1, 1, 2, 3])))
        request = ClaimRequest(session=process.session.number, slots=self._asked)
        claimed = await process.store.claim(request)
        self._afar = [one for one in self._afar if one.token not in {claim.token for claim in claimed.claims}]
        self._afar += claimed.claims

    def _remote_slot(self, queues: tuple[str, ...], handlers: tuple[str, ...] | None) -> Slot:
        pick = self.random
        key = self._ids() if pick.random() < 0.7 else None
        order = Order("created_at", descending=True) if pick.random() < 0.2 else None
        return Slot(
            free=pick.choice([1, 1, 2]),
            queues=queues,
            worker=f"r{pick.randrange(3)}",
            handlers=handlers,
            order=order,
            lasts=REMOTE_TTL,
            repeat=key,
        )

    async def _settles_from_afar(self, process: Process) -> None:
        """In time or too late: a remote worker does not know."""
        if self._afar:
            claim = self._afar.pop(self.random.randrange(len(self._afar)))
            said = self._settlement(claim, self._outcome())
            self._said.append(said)
            await self._write(process, [said])

    async def _gives_a_sign_of_life(self, process: Process) -> None:
        claims = self.random.sample(self._afar, min(2, len(self._afar)))
        signs = [Settlement(id=claim.id, token=claim.token, transition=progressed()) for claim in claims]
        await process.store.settle(signs)

    async def _settles(self, process: Process) -> None:
        count = min(len(process.held), self.random.choice([1, 1, 2, 3]))
        claims = self.random.sample(process.held, count)
        settlements = [self._settlement(claim, self._outcome()) for claim in claims]
        self._said += settlements
        if settlements:
            await self._write(process, settlements)
            process.held = [claim for claim in process.held if claim not in claims]

    async def _write(self, process: Process, settlements: list[Settlement]) -> None:
        for _ in range(3):
            try:
                await process.store.settle(settlements)
                return
            except StoreUnavailable:
                if self.random.random() < 0.3:
                    return

    def _settlement(self, claim: Claim, outcome: Outcome) -> Settlement:
        transition = decide(claim, outcome, POLICY, self.clock.now(), self.random.random())
        return Settlement(id=claim.id, token=claim.token, transition=transition, worker="w1")

    def _outcome(self) -> Outcome:
        pick = self.random
        follow_ups = tuple(self._new(queue=PLAIN) for _ in range(pick.choice([0, 0, 1, 2])))
        outcomes: list[Outcome] = [
            Completed(f'"{pick.randrange(1000)}"', follow_ups),
            Completed("null"),
            Failed(BROKEN, follow_ups),
            Failed(TaskError(category="bad", message="never", retryable=False)),
            Retry(after=pick.choice([0, SECOND])),
            Snooze(pick.randrange(1, 4) * SECOND),
            Released(),
            Released(started=True),
            Crashed(alone=pick.random() < 0.3),
            TimedOut(BROKEN),
            Cancelled("enough"),
        ]
        return pick.choices(outcomes, [6, 4, 3, 2, 1, 1, 2, 1, 1, 1, 1])[0]

    async def _reports(self, process: Process) -> None:
        if process.held:
            claim = self.random.choice(process.held)
            await process.store.settle([self._progress(claim)])

    def _progress(self, claim: Claim) -> Settlement:
        return Settlement(id=claim.id, token=claim.token, transition=progressed(self.random.randrange(100), None))

    async def _repeats(self, process: Process) -> None:
        """The same settlement again, as after a lost answer."""
        if self._said:
            await process.store.settle([self.random.choice(self._said[-12:])])

    async def _speaks_too_late(self, process: Process) -> None:
        """A writer that was replaced, or that speaks twice: whatever it says must be refused."""
        claims = list(self._zombies[-8:])
        if self._said and self.random.random() < 0.4:
            said = self.random.choice(self._said[-8:])
            other = self._otherwise(said)
            await process.store.settle([other])
        elif claims:
            claim = self.random.choice(claims)
            late = self._progress(claim) if self.random.random() < 0.5 else self._settlement(claim, self._outcome())
            await process.store.settle([late])

    def _otherwise(self, said: Settlement) -> Settlement:
        state = said.transition.state
        follow_up = (self._new(queue=PLAIN),)
        changed = Failed(BROKEN, follow_up) if state is State.COMPLETED else Completed('"late"', follow_up)
        claim = Claim(id=said.id, token=said.token, handler="job", queue=PLAIN, params="{}", attempt=9)
        return self._settlement(claim, changed)

    async def _renews(self, process: Process) -> None:
        assert process.session is not None
        renewal = await process.store.renew(process.session.number)
        if not renewal.alive:
            self._lost(process)
            return
        asked = dict(renewal.cancels)
        for claim in [claim for claim in process.held if asked.get(claim.id) == claim.token]:
            if self.random.random() < 0.7:
                await self._write(process, [self._settlement(claim, Cancelled("asked"))])
                process.held.remove(claim)

    async def _reclaims(self, process: Process) -> None:
        await process.store.reclaim(self.random.choice([1, 1000]))

    async def _goes_and_comes(self, process: Process) -> None:
        assert process.session is not None
        await process.store.end_session(process.session.number)
        self._lost(process)

    async def _dies(self, process: Process) -> None:
        raise Killed

    async def _operator_cancels(self, process: Process) -> None:
        if self._put:
            await process.store.cancel(by(id=self.random.choice(self._put[-20:]).id), reason="operator")

    async def _operator_retries(self, process: Process) -> None:
        if self.random.random() < 0.2:
            await process.store.retry(by(state="failed"), keep_attempts=True, limit=2)
        elif self._put:
            await process.store.retry(by(id=self.random.choice(self._put[-20:]).id))

    async def _operator_prunes(self, process: Process) -> None:
        await process.store.prune(by(state="completed"), before=self.clock.now() - 5 * SECOND, limit=2)

    async def _campaigns(self, process: Process) -> None:
        assert process.session is not None
        self._terms.append((await process.store.campaign(process.session.number)).term)

    async def _campaigns_race(self, process: Process) -> None:
        live = [one for one in self._processes if one.session is not None]
        await asyncio.gather(*(self._survives(self._campaigns(one)) for one in live))

    async def _resigns(self, process: Process) -> None:
        assert process.session is not None
        await process.store.resign(process.session.number)

    async def _leader_prunes(self, process: Process) -> None:
        """As the leader, or as one that does not know yet that it is no longer."""
        if self._terms:
            term = self.random.choice(self._terms[-3:])
            await process.store.prune(by(state="completed"), before=self.clock.now() - 5 * SECOND, limit=2, term=term)

    async def _time_passes(self, process: Process) -> None:
        self.clock.advance(self.random.choice(["1us", "100ms", "1s", "1s", "2s", "3s"]))

    async def _time_flies(self, process: Process) -> None:
        """Longer than a session lives without a renewal."""
        self.clock.advance("11s")

    async def _drain(self) -> None:
        """Faults are over. Every holder is dead by now; everything runs to its end."""
        self._heal()
        self.clock.advance("11s")
        process = self._processes[0] = await self._born("drain")
        for _ in range(DRAIN_ROUNDS):
            await process.store.reclaim()
            session = await self._session(process)
            request = ClaimRequest(session=session.number, slots=(Slot(free=50),))
            claimed = await process.store.claim(request)
            done = [self._settlement(claim, Completed("null")) for claim in claimed.claims]
            if done:
                await process.store.settle(done)
            elif claimed.next_due is not None:
                self.clock.advance_to(claimed.next_due)
            else:
                return

    async def _unfinished(self, store: Recorded) -> list[Violation]:
        tasks = (await store.find(EVERYTHING, limit=10_000)).tasks
        left = [task for task in tasks if not task.state.finished]
        return [
            Violation(invariant="everything that can run is run", what=f"task {task.id} is left {task.state}")
            for task in left
        ]


def told(violations: list[Violation], seed: int) -> str:
    """What to print of a run that failed."""
    first = "\n".join(str(violation) for violation in violations[:3])
    return f"seed {seed}: {len(violations)} violations\n{first}"
