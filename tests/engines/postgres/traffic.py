"""What an engine sends: the names of its statements, and how many round trips they take."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from psycopg.pq.abc import PGresult

from pitboss.engines.postgres import PostgresEngine
from pitboss.engines.postgres.pipeline import Pipeline
from pitboss.engines.postgres.script import Ask


class Traffic:
    def __init__(self) -> None:
        self.statements: list[str] = []
        self.round_trips = 0


@contextmanager
def traffic(engine: PostgresEngine, before: Callable[[str], None] = lambda name: None) -> Iterator[Traffic]:
    """Count what is sent within the block. `before` is called with the name of each statement before it is sent."""
    seen = Traffic()
    ask, receive = engine._sql.ask, Pipeline._receive

    def noted(name: str, now: int | None = None, /, **values: object) -> Ask:
        seen.statements.append(name)
        before(name)
        return ask(name, now, **values)

    async def received(pipeline: Pipeline) -> list[PGresult]:
        seen.round_trips += 1
        return await receive(pipeline)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine._sql, "ask", noted)
        patch.setattr(Pipeline, "_receive", received)
        yield seen
