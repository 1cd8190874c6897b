"""Which sessions are listed."""

from pathlib import Path

import pytest

from pitboss.testing.clock import FakeClock
from tests.engines.sqlite.store import asking, new, opened, session_of

pytestmark = pytest.mark.fresh_loop


async def test_one_that_ended_long_ago_is_not_listed_even_if_its_tasks_were_not_reclaimed(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path / "s.db", clock=clock) as engine:
        session = await session_of(engine)
        await engine.put([new()])
        assert len((await engine.claim(asking(session))).claims) == 1
        clock.advance("59m")
        assert [one.number for one in await engine.sessions()] == [session.number]
        clock.advance("2m")
        assert await engine.sessions() == []
        assert (await engine.reclaim()).lost == 1
