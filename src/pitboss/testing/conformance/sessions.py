"""Sessions: their numbers only grow, and a session that is over stays over."""

from pitboss.model.session import SessionInfo
from pitboss.testing.conformance.bench import Bench


class SessionKeeping:
    async def test_a_session_is_kept_as_it_was_opened(self, bench: Bench) -> None:
        info = SessionInfo(
            host="höst-1", boot_id="b00t", pid=4_194_304, kind="remote", handlers=("a", "b"), ttl=2_000_000
        )
        session = await bench.store.open_session(info)
        assert (session.info, session.opened_at, session.expires_at) == (info, bench.now, bench.now + 2_000_000)
        assert (session.ended, session.snapshot) == (False, None)
        assert await bench.store.sessions() == [bench.me, session]

    async def test_numbers_grow_and_are_never_used_again(self, bench: Bench) -> None:
        numbers = [bench.me.number]
        for _ in range(3):
            session = await bench.session()
            numbers.append(session.number)
            await bench.end(session)
            bench.clock.advance("3h")
            await bench.reclaim()
        assert numbers == sorted(set(numbers))

    async def test_an_ended_session_is_shown_as_over_from_now(self, bench: Bench) -> None:
        session = await bench.session()
        bench.clock.advance(1)
        await bench.end(session)
        shown = (await bench.store.sessions())[-1]
        assert (shown.number, shown.ended, shown.expires_at) == (session.number, True, bench.now)
        assert (shown.info, shown.opened_at) == (session.info, session.opened_at)

    async def test_ending_twice_is_ending_once(self, bench: Bench) -> None:
        session = await bench.session()
        await bench.end(session)
        before = await bench.store.sessions()
        bench.clock.advance(1)
        await bench.end(session)
        assert await bench.store.sessions() == before

    async def test_ending_a_session_that_never_was_is_harmless(self, bench: Bench) -> None:
        await bench.store.end_session(987_654)
        assert await bench.store.sessions() == [bench.me]

    async def test_ending_an_expired_session_does_not_prolong_it(self, bench: Bench) -> None:
        session = await bench.session(ttl=1_000)
        bench.clock.advance(1)
        await bench.end(session)
        shown = (await bench.store.sessions())[-1]
        assert (shown.ended, shown.expires_at) == (True, session.expires_at)

    async def test_a_dead_session_is_shown_for_an_hour(self, bench: Bench) -> None:
        session = await bench.session(ttl=1_000)
        bench.clock.advance_to(session.expires_at + 3_600_000_000 - 1)
        await bench.renew(bench.me)
        assert session.number in [one.number for one in await bench.store.sessions()]
        bench.clock.advance(1)
        assert session.number not in [one.number for one in await bench.store.sessions()]

    async def test_one_dead_session_does_not_touch_another(self, bench: Bench) -> None:
        other = await bench.session("job")
        await bench.end(other)
        assert (await bench.renew(bench.me)).alive
