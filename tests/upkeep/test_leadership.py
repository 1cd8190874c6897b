"""Managers that campaign, in virtual time: one leads, the others know which, and another follows in time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from pitboss.engines.memory import MemoryEngine
from pitboss.model.duration import SECOND
from pitboss.model.errors import StoreUnavailable
from pitboss.model.session import Lead, SessionInfo
from pitboss.testing.clock import FakeClock
from pitboss.testing.virtual import run_virtual
from pitboss.upkeep.leadership import BELIEVED, CAMPAIGN_SECONDS, Leadership, described

TTL = 15 * SECOND


class Store(MemoryEngine):
    """Raises StoreUnavailable while it is down."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.away = False
        self.asked = 0

    async def campaign(self, session: int) -> Lead:
        self.asked += 1
        if self.away:
            raise StoreUnavailable("no answer")
        return await super().campaign(session)


class Manager:
    """A renewed session and its campaign. `stop` ends the process without telling the store."""

    def __init__(self, store: Store, host: str) -> None:
        self.store, self.host = store, host
        self.session: int | None = None
        self.told: list[tuple[int, str]] = []
        self.leadership = Leadership(store, lambda: self.session, clock=store.clock, told=self._hear)
        self._duties: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self.session = (await self.store.open_session(SessionInfo(host=self.host, ttl=TTL))).number
        self._duties = [asyncio.create_task(self._renew()), asyncio.create_task(self.leadership.campaign_forever())]
        await asyncio.sleep(0)

    async def stop(self) -> None:
        for duty in self._duties:
            duty.cancel()
        for duty in self._duties:
            with suppress(asyncio.CancelledError):
                await duty

    def _hear(self, lead: Lead) -> None:
        self.told.append((lead.term, lead.host))

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(TTL / SECOND / 3)
            assert self.session is not None
            await self.store.renew(self.session)


Scene = Callable[[Store, Manager, Manager], Awaitable[None]]


def play(scene: Scene) -> None:
    """Two managers on one store; the first one campaigns first."""

    async def main() -> None:
        store = Store(clock)
        one, two = Manager(store, "one"), Manager(store, "two")
        try:
            await one.start()
            await two.start()
            await scene(store, one, two)
        finally:
            await one.stop()
            await two.stop()

    clock = FakeClock()
    run_virtual(main(), clock=clock, limit="1h")


def test_one_leads_and_both_know_it() -> None:
    async def scene(store: Store, one: Manager, two: Manager) -> None:
        await asyncio.sleep(100)
        assert (one.leadership.term(), two.leadership.term()) == (1, None)
        assert one.told == two.told == [(1, "one")]
        assert two.leadership.lead() == Lead(term=1, session=1, host="one")

    play(scene)


def test_asking_is_once_a_second() -> None:
    async def scene(store: Store, one: Manager, two: Manager) -> None:
        before = store.asked
        await asyncio.sleep(100)
        assert store.asked - before == pytest.approx(2 * 100 / CAMPAIGN_SECONDS, abs=2)

    play(scene)


def test_a_leader_that_ends_its_session_is_followed_within_a_second() -> None:
    async def scene(store: Store, one: Manager, two: Manager) -> None:
        await asyncio.sleep(10.3)
        await one.stop()
        await store.end_session(1)
        await asyncio.sleep(CAMPAIGN_SECONDS)
        assert two.leadership.term() == 2
        assert two.told == [(1, "one"), (2, "two")]

    play(scene)


def test_a_leader_that_dies_is_followed_when_its_session_has_expired() -> None:
    async def scene(store: Store, one: Manager, two: Manager) -> None:
        await asyncio.sleep(10.3)
        await one.stop()
        (dead, _) = await store.sessions()
        left = (dead.expires_at - store.clock.now()) / SECOND
        await asyncio.sleep(left - 0.001)
        assert two.leadership.term() is None
        await asyncio.sleep(CAMPAIGN_SECONDS + 0.001)
        assert two.leadership.term() == 2

    play(scene)


def test_a_leader_that_was_paused_believes_it_no_longer_and_is_told_so() -> None:
    async def scene(store: Store, one: Manager, two: Manager) -> None:
        await asyncio.sleep(10)
        await one.stop()
        await asyncio.sleep(40)
        assert one.leadership.term() is None
        await one.leadership.campaign()
        assert one.leadership.lead() is None
        assert two.leadership.term() == 2

    play(scene)


def test_a_manager_with_a_new_session_leads_only_under_a_new_term() -> None:
    async def scene(store: Store, one: Manager, two: Manager) -> None:
        await two.stop()
        await store.end_session(1)
        one.session = (await store.open_session(SessionInfo(host="one", ttl=TTL))).number
        assert one.leadership.term() is None
        await one.leadership.campaign()
        assert one.leadership.term() == 2

    play(scene)


def test_an_answer_is_believed_for_a_while_when_the_store_is_away() -> None:
    async def scene(store: Store, one: Manager, two: Manager) -> None:
        await asyncio.sleep(10)
        store.away = True
        await asyncio.sleep(BELIEVED / SECOND - CAMPAIGN_SECONDS - 0.5)
        assert one.leadership.term() == 1
        await asyncio.sleep(3)
        assert one.leadership.term() is None
        store.away = False
        await asyncio.sleep(CAMPAIGN_SECONDS)
        assert one.leadership.term() == 1
        assert one.told == [(1, "one")]

    play(scene)


def test_without_a_session_there_is_no_campaign() -> None:
    async def scene(store: Store, one: Manager, two: Manager) -> None:
        await asyncio.sleep(5)
        assert one.leadership.term() == 1
        await one.stop()
        one.session = None
        asked = store.asked
        await one.leadership.campaign()
        assert store.asked == asked
        assert one.leadership.lead() is None

    play(scene)


def test_a_manager_that_stops_hands_the_lead_over() -> None:
    """While it drained it led on, and put tasks that had to wait for the next manager."""

    async def scene(store: Store, one: Manager, two: Manager) -> None:
        await asyncio.sleep(10.3)
        assert one.leadership.term() == 1
        await one.leadership.retire()
        assert one.leadership.term() is None
        await one.leadership.campaign()
        assert one.leadership.term() is None
        assert await store.leader() is None
        await asyncio.sleep(CAMPAIGN_SECONDS)
        assert (one.leadership.term(), two.leadership.term()) == (None, 2)
        await two.stop()
        await store.end_session(2)
        await asyncio.sleep(5 * CAMPAIGN_SECONDS)
        assert one.leadership.term() is None, "it draws back for good"

    play(scene)


def test_a_campaign_under_way_does_not_bring_a_retired_leader_back() -> None:
    """Regression: its answer made the manager lead again while it stopped, and no other could lead."""

    async def scene() -> None:
        clock = FakeClock()
        engine = SlowElection(clock=clock)
        session = await engine.open_session(SessionInfo(host="h"))
        leadership = Leadership(engine, lambda: session.number, clock=clock)
        campaigning = asyncio.create_task(leadership.campaign())
        await engine.asked.wait()
        await leadership.retire()
        engine.may_answer.set()
        await campaigning
        assert leadership.term() is None
        assert await engine.leader() is None

    asyncio.run(scene())


class SlowElection(MemoryEngine):
    def __init__(self, *, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def campaign(self, session: int) -> Lead:
        self.asked.set()
        await self.may_answer.wait()
        return await super().campaign(session)


def test_who_leads_is_told_in_plain_words() -> None:
    assert described(Lead(term=3, session=9, host="h", mine=True)) == "this manager leads (term 3)"
    assert described(Lead(term=3, session=9, host="h")) == "the manager on h (session 9) leads (term 3)"
