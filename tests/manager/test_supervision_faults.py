"""Faults of the manager's own: what breaks is told, and the manager does not go on half alive."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pitboss import wiring
from pitboss.engines.memory.engine import MemoryEngine
from pitboss.manager import manager as manager_room
from pitboss.manager import watch as watch_room
from pitboss.manager.manager import Manager, Plan
from pitboss.manager.watch import Watch
from pitboss.model.desired_state import DesiredManager, manager_key
from pitboss.model.duration import SECOND
from pitboss.worker.describe import Description
from tests.manager.house import TARGET


class Moody(MemoryEngine):
    """Breaks when it is asked for wishes, as often as told."""

    breaks = 0

    async def wishes(self, since: int = 0) -> list[Any]:
        if self.breaks:
            self.breaks -= 1
            raise RuntimeError("bad mood")
        return list(await super().wishes(since))


async def until(condition: Callable[[], object]) -> None:
    limit = asyncio.get_running_loop().time() + 10
    while not condition():
        assert asyncio.get_running_loop().time() < limit
        await asyncio.sleep(0.01)


async def test_a_duty_that_breaks_is_told_and_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"_TICK_SECONDS": 0.02, "_LONGEST_PAUSE": 0.02}.items():
        monkeypatch.setattr(manager_room, name, seconds)
    engine, said = Moody(clock=wiring.SystemClock()), list[str]()
    plan = Plan(target=TARGET, pools=(), ttl=SECOND)
    manager = Manager(
        engine,
        plan,
        Description(),
        make_engine=None,
        clock=wiring.SystemClock(),
        luck=lambda: 0.5,
        tell=said.append,
    )
    running = asyncio.create_task(manager.run())
    await until(manager.started.is_set)
    engine.breaks = 3
    # Only what may be new is read: a wish, of which the first look fails, and the next renewal tells again.
    await engine.wish("pool/any", "{}", by="test")
    await until(lambda: sum("a fault of Pitboss itself (RuntimeError: bad mood)" in line for line in said) == 3)
    (session,) = (one.number for one in await engine.sessions())
    await engine.wish(manager_key(session), msgspec.json.encode(DesiredManager(stop=True)).decode(), by="test")
    async with asyncio.timeout(10):
        await running
    assert "an operator asked this manager to stop" in said


class Ear:
    """Hears what a watch says."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


async def test_a_look_that_breaks_is_not_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_room, "LOOK_SECONDS", 0.01)
    ear, looks = Ear(), list[int]()

    def crews() -> list[Any]:
        looks.append(1)
        if len(looks) < 4:
            raise OSError("no such file")
        return []

    overseer: Any = ear
    watching = asyncio.create_task(Watch(overseer, crews).run())
    await until(lambda: len(looks) > 6)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert ear.said == ["a fault of Pitboss itself (OSError: no such file); the watch goes on"]
