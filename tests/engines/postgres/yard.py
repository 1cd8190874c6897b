"""Several engines on one PostgreSQL store, each as another process would open it; the server's clock rules."""

import random
import time
from collections.abc import Sequence
from typing import Any

import psycopg

from pitboss.engines.postgres import PostgresEngine
from pitboss.model.ids import IdMaker
from pitboss.model.outcome import Transition
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import Claimed, ClaimRequest, Session, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim, NewTask
from pitboss.testing.plugin import InLoop

DONE = Transition(state=State.COMPLETED, outcome="completed", charged=True)
AGAIN = Transition(state=State.PENDING, outcome="released", recorded=False)


class Yard(InLoop):
    """The first engine is open, "job" is registered, and a session is alive."""

    engine: PostgresEngine
    session: Session

    def __init__(self, dsn: str, **options: Any) -> None:
        self.dsn = dsn
        self._options = options
        self._engines: list[PostgresEngine] = []
        self._ids = IdMaker(lambda: time.time_ns() // 1000, random.getrandbits)

    async def __aenter__(self) -> "Yard":
        self.engine = await self.open()
        await self.engine.register([HandlerInfo(name="job")])
        self.session = await self.engine.open_session(SessionInfo(host="here", handlers=("job",), ttl=3_600_000_000))
        return self

    async def __aexit__(self, *exc: object) -> None:
        for engine in self._engines:
            await engine.close()

    async def open(self, **options: Any) -> PostgresEngine:
        engine = PostgresEngine(self.dsn, **(self._options | options))
        self._engines.append(engine)
        await engine.open()
        return engine

    async def open_many(self, number: int) -> list[PostgresEngine]:
        return [await self.open(listen=False, connections=2) for _ in range(number)]

    def new(self, **options: Any) -> NewTask:
        return NewTask(**{"id": self._ids(), "handler": "job"} | options)

    def news(self, number: int, **options: Any) -> list[NewTask]:
        return [self.new(**options) for _ in range(number)]

    async def claim(self, free: int, engine: PostgresEngine | None = None, **options: Any) -> Claimed:
        request = ClaimRequest(session=self.session.number, slots=(Slot(free=free, **options),))
        return await (engine or self.engine).claim(request)

    async def count(self, query: str, *values: object) -> int:
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            row = await (await connection.execute(query.encode(), values)).fetchone()
        assert row is not None
        found: int = row[0]
        return found

    async def flush_statistics(self) -> None:
        """What the engine's connections have counted becomes readable. They are taken meanwhile, as by any call."""
        connections = self.engine._writing
        taken, connections._idle = connections._idle, []
        for pipeline in taken:
            await pipeline.connection.execute("SELECT pg_stat_force_next_flush()")
            await connections._give_back(pipeline)

    async def assert_figures(self) -> None:
        """The queues' counts equal a recount."""
        wrong = await self.count(
            """
            SELECT count(*) FROM (
                SELECT queue, state, count(*) AS n FROM pitboss.tasks GROUP BY queue, state
            ) AS real FULL JOIN (
                SELECT queue, state, sum(n) AS n FROM (
                    SELECT queue, state, n FROM pitboss.counts
                    UNION ALL SELECT queue, state, n FROM pitboss.count_deltas
                ) AS parts GROUP BY queue, state HAVING sum(n) <> 0
            ) AS told USING (queue, state) WHERE real.n IS DISTINCT FROM told.n
            """
        )
        assert wrong == 0


def ends(claims: Sequence[Claim], transition: Transition = DONE) -> list[Settlement]:
    return [Settlement(id=claim.id, token=claim.token, transition=transition) for claim in claims]
