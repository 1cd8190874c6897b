"""The six verbs on PostgreSQL, opening and closing, and puts inside a caller's own transaction."""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.errors import UniqueViolation

from pitboss.engines.postgres import batches, diagnosis, maintenance, schema, usage
from pitboss.engines.postgres.access import AccessProtocol
from pitboss.engines.postgres.alerts import AlertProtocol
from pitboss.engines.postgres.claim import Claimer
from pitboss.engines.postgres.connections import READING_PLANS, STEADY_PLANS, Connections
from pitboss.engines.postgres.declared_protocols import DeclaredProtocols
from pitboss.engines.postgres.doorbell import Doorbell
from pitboss.engines.postgres.figures import FigureProtocol
from pitboss.engines.postgres.happenings import HappeningProtocol
from pitboss.engines.postgres.operations import OperationProtocol
from pitboss.engines.postgres.partitions import PartitionProtocol
from pitboss.engines.postgres.put import PART, put_in_parts, put_locked, put_quickly
from pitboss.engines.postgres.reclaim import Chores, find_chores, lose_bound, promote, reclaim_plain
from pitboss.engines.postgres.script import Again, Script, Statements, T
from pitboss.engines.postgres.server_clock import ServerClock
from pitboss.engines.postgres.settle import bound, settle, simple
from pitboss.engines.postgres.settle_bound import settle_bound
from pitboss.engines.postgres.vacuum import Vacuum
from pitboss.engines.postgres.within import publish_within, put_within
from pitboss.engines.protocol import Clock, Failpoint
from pitboss.model.errors import InvalidInput, StoreUnavailable
from pitboss.model.event import NewEvent
from pitboss.model.finding import Finding
from pitboss.model.host_findings import clock_skew, clock_step
from pitboss.model.lifecycle import stepped
from pitboss.model.session import Claimed, ClaimRequest, Reclaimed, Renewal
from pitboss.model.settlement import SettleAnswer, Settlement
from pitboss.model.states import State
from pitboss.model.task import NewTask, Placed, Token
from pitboss.model.usage import StoreUsage

_MAINTENANCE_SECONDS = 3600.0
_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,55}\Z")


class PostgresEngine(
    DeclaredProtocols,
    PartitionProtocol,
    OperationProtocol,
    AccessProtocol,
    AlertProtocol,
    FigureProtocol,
    HappeningProtocol,
):
    """A store in one schema of a PostgreSQL database. Belongs to the event loop that it was opened in."""

    name = "postgres"
    gradual = True

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "pitboss",
        clock: Clock | None = None,
        failpoint: Failpoint | None = None,
        connections: int = 4,
        limit: float = 10.0,
        listen: bool = True,
    ) -> None:
        sql = Statements(_checked(schema), f"pitboss:{schema}")
        watched = ServerClock(sql, clock)
        writing = Connections(dsn, size=connections, limit=limit, settings=STEADY_PLANS, clock=watched)
        reading = Connections(dsn, size=2, limit=limit, settings=READING_PLANS, clock=watched)
        super().__init__(sql, writing, reading, watched)
        self._dsn, self._failpoint = dsn, failpoint
        self._listen = listen
        self._doorbell = Doorbell(sql.channel, writing.connect, self._notify)
        self._vacuum = Vacuum(sql.quoted, writing.connect, lambda: writing.pooled)
        # Puts that began with these queues met a capacity: the next one takes the locks at once. Only a hint.
        self._bounded: set[str] = set()
        self._claimer = Claimer(sql, writing, lambda: self._reach("claim.commit"))

    async def open(self) -> None:
        found, wanted = await self.schema_version()
        schema.check(found, wanted)
        if found < wanted:
            await self.upgrade()
        await self._reading.look_at_clock()
        if self._listen:
            await self._doorbell.open()

    async def close(self) -> None:
        await self._doorbell.close()
        await self._vacuum.close()
        await self._writing.close()
        await self._reading.close()

    def on_trouble(self, told: Callable[[StoreUnavailable], None]) -> None:
        self._writing.trouble = self._reading.trouble = told

    async def probe(self) -> None:
        await self._writing.probe()

    async def schema_version(self) -> tuple[int, int]:
        return await self._reading.call(lambda: schema.version(self._sql)), schema.wanted(self._sql)

    async def upgrade(self) -> list[str]:
        return await self._reading.call(lambda: schema.upgrade(self._sql), transaction=True)

    async def put(self, tasks: Sequence[NewTask]) -> list[Placed]:
        self._reach("put.before")
        now, ring = self._now(), self._doorbell.may_ring_now()
        if not tasks:
            return []
        placed = await self._placed(tasks, now, ring)
        if not ring:
            ready = zip(tasks, placed, strict=True)
            self._doorbell.ring_soon({task.queue for task, one in ready if one.created and one.state is State.PENDING})
        self._reach("put.after")
        return placed

    async def _placed(self, tasks: Sequence[NewTask], now: int | None, ring: bool) -> list[Placed]:
        if tasks[0].queue not in self._bounded:
            try:
                placed = await self._placed_quickly(tasks, now, ring)
            except UniqueViolation:
                placed = Again()  # another call has just put one of these: the way below meets it
            if not isinstance(placed, Again):
                return placed
        made = list(tasks)
        found = await self._writing.call(
            lambda: put_locked(self._sql, made, now, ring=ring),
            transaction=True,
            before_commit=lambda: self._reach("put.commit"),
        )
        self._bounded.discard(made[0].queue)
        if found.bounded:
            self._bounded.add(made[0].queue)
        return found.placed

    async def _placed_quickly(self, tasks: Sequence[NewTask], now: int | None, ring: bool) -> list[Placed] | Again:
        # Keys are locked in their order, all at once: in parts, two calls might wait for each other.
        if len(tasks) <= PART or tasks[0].unique is not None:
            return await self._writing.call(lambda: put_quickly(self._sql, tasks, now, ring=ring))
        return await self._writing.call(
            lambda: put_in_parts(self._sql, tasks, now, ring=ring),
            transaction=True,
            before_commit=lambda: self._reach("put.commit"),
        )

    async def claim(self, request: ClaimRequest) -> Claimed:
        self._reach("claim.before")
        claimed = await self._claimer.claim(request, self._now())
        self._vacuum.note_claims(len(claimed.claims))
        self._reach("claim.after")
        return claimed

    async def renew(self, session: int, snapshot: str | None = None) -> Renewal:
        self._reach("renew.before")
        rows = await self._write("session_renew", session=session, snapshot=snapshot)
        self._reach("renew.after")
        if not rows:
            return Renewal(alive=False)
        ((expires_at, desired, asked),) = rows
        cancels = tuple((task, Token(session, int(number))) for task, number in (one.split(" ") for one in asked))
        return Renewal(alive=True, expires_at=expires_at, cancels=cancels, desired=desired)

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        self._reach("settle.before")
        answers = await self._settled(settlements) if settlements else []
        self._reach("settle.after")
        return answers

    async def _settled(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        """Write the group; if a settlement in it cannot be written, find it and write the others without it."""
        try:
            return await self._settled_together(settlements, self._now())
        except InvalidInput as error:
            if len(settlements) == 1:
                return [SettleAnswer(False, f"it cannot be written: {error.why}")]
            half = len(settlements) // 2
            return [*await self._settled(settlements[:half]), *await self._settled(settlements[half:])]

    async def _settled_together(self, settlements: Sequence[Settlement], now: int | None) -> list[SettleAnswer]:
        answers: list[SettleAnswer | None] | Again = Again()
        if not bound(settlements):
            answers = await self._writing.call(
                lambda: settle(self._sql, settlements, now),
                transaction=not simple(settlements),
                before_commit=lambda: self._reach("settle.commit"),
            )
        if isinstance(answers, Again):
            answers = [None] * len(settlements)
        left = [one for one, answer in zip(settlements, answers, strict=True) if answer is None]
        rest = iter(await self._settled_bound(left, now) if left else ())
        return [next(rest) if answer is None else answer for answer in answers]

    async def _settled_bound(self, settlements: Sequence[Settlement], now: int | None) -> list[SettleAnswer]:
        return await self._with_lanes_if_needed(
            lambda lanes: settle_bound(self._sql, settlements, now, lanes=lanes), "settle.commit"
        )

    async def _with_lanes_if_needed(self, make: Callable[[bool], Script[T | Again]], reached: str) -> T:
        """Within a transaction: at first without locks on lanes, as batches end seldom."""
        for lanes in (False, True):
            answer = await self._writing.call(
                partial(make, lanes), transaction=True, before_commit=lambda: self._reach(reached)
            )
            if not isinstance(answer, Again):
                return answer
        raise AssertionError

    async def reclaim(self, limit: int = 1000) -> Reclaimed:
        self._reach("reclaim.before")
        now = self._now()
        chores = await self._writing.call(lambda: find_chores(self._sql, now))
        if not chores.any and self._failpoint is None:
            # Every manager asks every second, and nearly always there is nothing.
            return Reclaimed()
        first = await self._swept(chores, limit, now)
        plain = await self._writing.call(
            lambda: reclaim_plain(self._sql, max(0, limit - first.lost - first.failed), now),
            transaction=True,
            before_commit=lambda: self._reach("reclaim.commit"),
        )
        self._reach("reclaim.after")
        return Reclaimed(
            lost=first.lost + plain.lost,
            cancelled=first.cancelled + plain.cancelled,
            failed=first.failed + plain.failed,
            released=first.released + plain.released,
            leases=first.leases,
            more=first.more or plain.more,
        )

    async def _swept(self, chores: Chores, limit: int, now: int | None) -> Reclaimed:
        """What needs locks on more than tasks, each in a transaction of its own."""
        swept = Reclaimed()
        if chores.orphans or chores.leases:
            swept = await self._with_lanes_if_needed(
                lambda lanes: lose_bound(self._sql, limit, now, lanes=lanes), "reclaim.commit"
            )
        released = await self._release_items(None, now, limit) if chores.items else 0
        cancelled, more = 0, False
        if chores.cancelling:
            cancelled, more = await self._reading.call(
                lambda: batches.go_on_cancelling(self._sql, chores.cancelling, limit, now), transaction=True
            )
        if chores.lanes:
            await self._writing.call(lambda: promote(self._sql, chores.lanes, now), transaction=True)
        return Reclaimed(
            lost=swept.lost,
            cancelled=swept.cancelled + cancelled,
            failed=swept.failed,
            released=released,
            leases=swept.leases,
            more=swept.more or more or (bool(limit) and released >= limit),
        )

    async def wait(self, queues: Sequence[str] | None, timeout: float) -> bool:
        return await self._doorbell.wait(queues, timeout)

    def put_within(self, connection: Connection[Any] | AsyncConnection[Any], tasks: Sequence[NewTask]) -> Any:
        return put_within(self._sql.without_expectation(), connection, tasks, self._now())

    def publish_within(self, connection: Connection[Any] | AsyncConnection[Any], events: Sequence[NewEvent]) -> Any:
        return publish_within(self._sql.without_expectation(), connection, events, self._now())

    async def diagnose(self, clock: Clock) -> list[Finding]:
        before = clock.wall()
        (row,) = await self._write("server_diagnose")
        after, found = clock.wall(), diagnosis.server(row)
        ahead = self.clock.wall() - self.clock.now()
        skew = clock_skew((before + after) // 2 - found.now - ahead, (after - before) // 2)
        locks = diagnosis.of_locks(await self._write("server_locks"))
        return [*diagnosis.of_server(found), locks, skew, *([clock_step(ahead)] if stepped(0, ahead) else [])]

    async def usage(self) -> StoreUsage:
        return await self._reading.call(lambda: usage.usage(self._sql))

    async def refuse_new(self, reason: str | None, *, term: int) -> None:
        now = self._now()
        await self._writing.call(lambda: usage.refuse_new(self._sql, reason, term, now), transaction=True)

    async def check(self, *, seconds: float | None = None, full: bool = False, counts: bool = True) -> list[Finding]:
        """`full` is for engines that keep their own files: PostgreSQL's checksums and pg_amcheck look at them."""
        async with self._patient(seconds or _MAINTENANCE_SECONDS) as connections:
            return await maintenance.check(self._sql, connections, counts=counts)

    async def recount(self) -> int:
        async with self._patient(_MAINTENANCE_SECONDS) as connections:
            return await connections.call(lambda: maintenance.recount(self._sql), transaction=True)

    async def backup(self, to: Path, told: Callable[[int, int], None], *, salvage: bool = False) -> str:
        try:
            if salvage:
                raise maintenance.no_salvage()
            return await maintenance.dump(self._dsn, self._sql.schema, to, told)
        except BaseException:
            maintenance.remove(to)
            raise

    @asynccontextmanager
    async def _patient(self, limit: float) -> AsyncIterator[Connections]:
        """A connection for statements that may take this long."""
        connections = Connections(self._dsn, size=1, limit=limit, settings={"jit": "off"}, clock=self._clock)
        try:
            yield connections
        finally:
            await connections.close()

    async def _notify(self, payload: str) -> None:
        await self._write("server_notify", payload=payload)

    def _reach(self, name: str) -> None:
        if self._failpoint is not None:
            self._failpoint(name)


def _checked(name: str) -> str:
    if not _SCHEMA.match(name):
        raise InvalidInput(
            f"{name!r:.80} cannot name a schema",
            why="a schema's name is 1 to 56 letters, digits and _ and does not begin with a digit",
            fix="choose a name of that form, such as pitboss_staging",
        )
    return name
