"""Bugs in the manager itself: it reports them, and starts the broken part again."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pitboss import wiring
from pitboss.engines.memory.engine import MemoryEngine
from pitboss.manager import health_checks as health_module
from pitboss.manager import manager as manager_module
from pitboss.manager.health_checks import HealthChecks
from pitboss.manager.manager import Manager, Plan
from pitboss.manager.worker_process import STANDS_STILL
from pitboss.model.desired_state import DesiredManager, manager_key
from pitboss.model.duration import SECOND
from pitboss.model.health import Finding, Remedy
from pitboss.worker.describe import Description
from tests.manager.cluster import TARGET


class Moody(MemoryEngine):
    """Raises when it is asked for wishes, `breaks` times."""

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
        monkeypatch.setattr(manager_module, name, seconds)
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
    # The manager reads wishes only when there may be new ones. The first read fails; the next renewal asks again.
    await engine.wish("pool/any", "{}", by="test")
    await until(lambda: sum("a fault of Pitboss itself (RuntimeError: bad mood)" in line for line in said) == 3)
    (session,) = (one.number for one in await engine.sessions())
    await engine.wish(manager_key(session), msgspec.json.encode(DesiredManager(stop=True)).decode(), by="test")
    async with asyncio.timeout(10):
        await running
    assert "an operator asked this manager to stop" in said


class Announcements:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


async def test_a_broken_health_check_is_not_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "CHECK_SECONDS", 0.01)
    announcements, checks = Announcements(), list[int]()

    def pools() -> list[Any]:
        checks.append(1)
        if len(checks) < 4:
            raise OSError("no such file")
        return []

    announcer: Any = announcements
    router: Any = None
    running = asyncio.create_task(HealthChecks(pools, router, announcer, lambda _: None).run())
    await until(lambda: len(checks) > 6)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert announcements.said == ["a fault of Pitboss itself (OSError: no such file); health checks go on"]


class Frozen:
    """A worker that writes no stack."""

    def __init__(self) -> None:
        self.name, self.silence, self.asked_for_stack, self.asked_at, self.reported_blocked = (
            "w-1",
            7.2,
            True,
            0.0,
            False,
        )

    def read_stack(self) -> str:
        return ""


async def test_a_worker_that_stands_still_is_reported_once_without_its_place() -> None:
    announcements, worker = Announcements(), Frozen()
    announcer: Any = announcements
    router: Any = None
    frozen: Any = worker
    checks = HealthChecks(list, router, announcer, lambda _: None)
    finding = Finding("blocked", Remedy.TELL, "has not answered for 7s")
    worker.asked_at = asyncio.get_running_loop().time()
    checks._report_blocked(frozen, finding)
    assert announcements.said == [], "it gets a moment to write its stack"
    worker.asked_at -= 3
    checks._report_blocked(frozen, finding)
    checks._report_blocked(frozen, finding)
    assert announcements.said == [f"worker w-1 has not answered for 7s and does not say where it is: {STANDS_STILL}"]
