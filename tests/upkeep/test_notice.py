"""Lost managers and other releases of an app are noted once for a store, whichever manager leads."""

from random import Random
from typing import Any

import msgspec

from pitboss.engines.memory import MemoryEngine
from pitboss.model.duration import SECOND, Moment
from pitboss.model.happening import HappeningId, Kind, Severity, happening
from pitboss.model.ids import IdMaker
from pitboss.model.session import Session, SessionInfo
from pitboss.model.snapshot import Snapshot
from pitboss.testing.clock import FakeClock
from pitboss.upkeep.notice import Noticer


class Scene:
    """A store, and noticers that write to its log at once."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryEngine(clock=self.clock)
        self.waiting: list[Any] = []
        self.ids = IdMaker(self.clock.now, Random(1).getrandbits)

    def noticer(self) -> Noticer:
        return Noticer(self.store, self.store, self.clock, self._note)

    async def look(self, noticer: Noticer) -> None:
        await noticer.notice(1)
        await self.store.record_happenings(self.waiting)
        self.waiting.clear()

    async def manager(self, release: str = "", *, pid: int = 1, kind: str = "manager", ttl: int = 15) -> Session:
        info = SessionInfo(host="box", boot_id="b", pid=pid, kind=kind, ttl=ttl * SECOND)
        session = await self.store.open_session(info)
        text = msgspec.json.encode(Snapshot(app="shop", release=release)).decode()
        await self.store.renew(session.number, text)
        return session

    async def texts(self) -> list[str]:
        return [one.text for one in (await self.store.happenings())[::-1]]

    def _note(
        self,
        kind: Kind,
        subject: str,
        text: str,
        details: dict[str, Any] | None = None,
        *,
        severity: Severity | None = None,
        known: tuple[HappeningId, Moment] | None = None,
    ) -> None:
        now = self.clock.now()
        new_id, at = known or (self.ids(), now)
        self.waiting.append(happening(new_id, at, kind, subject, text, details=details or {}))


async def test_a_manager_that_does_not_renew_is_lost_once() -> None:
    scene = Scene()
    first, second = scene.noticer(), scene.noticer()
    gone = await scene.manager(pid=1)
    kept = await scene.manager(pid=2, ttl=3600)
    await scene.look(first)
    assert await scene.texts() == []
    scene.clock.advance(16)
    for noticer in (first, first, second, scene.noticer()):
        await scene.look(noticer)
    (one,) = await scene.store.happenings(kinds=[Kind.MANAGER_LOST])
    assert one.text == f"manager {gone.number} on box (pid 1) is gone"
    assert one.at == gone.expires_at
    assert kept.alive(scene.clock.now())


async def test_a_manager_that_ended_or_went_on_is_not_lost() -> None:
    scene = Scene()
    noticer = scene.noticer()
    await scene.store.end_session((await scene.manager(pid=1)).number)
    await scene.manager(pid=2)
    await scene.manager(pid=3, kind="http")
    scene.clock.advance(16)
    await scene.manager(pid=2)
    await scene.look(noticer)
    assert await scene.texts() == []


async def test_another_release_is_noted_when_the_first_manager_has_it() -> None:
    scene = Scene()
    noticer = scene.noticer()
    old = await scene.manager("r1", pid=1, ttl=3600)
    await scene.look(noticer)
    await scene.manager("r1", pid=2, ttl=3600)
    await scene.look(noticer)
    new = await scene.manager("r2", pid=3, ttl=3600)
    for one in (noticer, noticer, scene.noticer()):
        await scene.look(one)
    await scene.store.end_session(old.number)
    await scene.look(noticer)
    assert await scene.texts() == [
        f"the first known release of app shop runs: r1, first in manager {old.number}",
        f"another release of app shop runs: r2, first in manager {new.number}",
    ]


async def test_a_roll_back_is_another_release() -> None:
    scene = Scene()
    noticer = scene.noticer()
    for release in ("r1", "r2", "r1"):
        session = await scene.manager(release)
        await scene.look(noticer)
        await scene.store.end_session(session.number)
    assert [text.split(": ")[1][:2] for text in await scene.texts()] == ["r1", "r2", "r1"]


async def test_the_next_leader_knows_what_was_noted() -> None:
    scene = Scene()
    await scene.manager("r1", ttl=3600)
    await scene.look(scene.noticer())
    scene.clock.advance(10)
    await scene.look(scene.noticer())
    assert len(await scene.texts()) == 1
