"""What the leader reads to judge alerts does not grow with the tasks that are stored. Counted in steps of SQLite."""

from pathlib import Path
from typing import Any

import pytest

from pitboss.client.alert_facts import read_alert_facts
from pitboss.engines.sqlite import readers
from pitboss.engines.sqlite.connection import connect_reader
from pitboss.model.outcome import Transition
from pitboss.model.session import ClaimRequest, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import TaskError
from tests.engines.sqlite.store import new, opened, session_of

DONE = Transition(state=State.COMPLETED, outcome="completed")
FAILED = Transition(state=State.FAILED, outcome="failed", error=TaskError(category="error", message="no"))
FEW, MANY = 6_000, 18_000


class Counted:
    """A connection of a reader that counts its steps."""

    steps = 0

    def __init__(self, path: Path) -> None:
        self._inner = connect_reader(path)
        self._inner.set_progress_handler(self._step, 1)

    def _step(self) -> int:
        Counted.steps += 1
        return 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def steps(path: Path, number: int) -> int:
    async with opened(path) as engine:
        began = engine.clock.now()
        session = await session_of(engine)
        for _ in range(0, number, 1000):
            await engine.put([new() for _ in range(1000)])
            for transition in (DONE, FAILED):
                slot = Slot(free=300)
                claims = (await engine.claim(ClaimRequest(session=session.number, slots=(slot,)))).claims
                await engine.settle([Settlement(id=one.id, token=one.token, transition=transition) for one in claims])
        await read_alert_facts(engine)
        Counted.steps = 0
        facts = await read_alert_facts(engine)
        taken = Counted.steps
        assert facts.queues["default"].unserved > 0
        ended = (await read_alert_facts(engine, since=began)).totals
        assert sum(n for (kind, _, _), n in ended.items() if kind == "failed") == number * 3 // 10
        return taken


async def test_it_costs_the_same_with_many_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "connect_reader", Counted)
    few = await steps(tmp_path / "few.db", FEW)
    many = await steps(tmp_path / "many.db", MANY)
    assert 0 < many <= few * 1.1 + 50
