"""Renewing: a session lives as long as it renews in time, and the answer tells it what operators want."""

from pitboss.model.filter import by
from pitboss.model.outcome import Released
from pitboss.model.session import Renewal
from pitboss.model.settlement import APPLIED
from pitboss.model.states import State
from pitboss.testing.conformance.bench import Bench


class Renewing:
    async def test_a_renewal_counts_from_now(self, bench: Bench) -> None:
        session = await bench.session(ttl=10_000_000)
        bench.clock.advance(4)
        assert await bench.renew(session) == Renewal(alive=True, expires_at=bench.now + 10_000_000)
        (shown,) = [one for one in await bench.store.sessions() if one.number == session.number]
        assert (shown.opened_at, shown.expires_at) == (session.opened_at, bench.now + 10_000_000)

    async def test_the_last_microsecond_is_in_time_and_the_next_is_not(self, bench: Bench) -> None:
        session = await bench.session(ttl=1_000)
        bench.clock.advance("999us")
        assert (await bench.renew(session)).alive
        bench.clock.advance("1000us")
        assert await bench.renew(session) == Renewal(alive=False)

    async def test_a_dead_session_is_changed_in_nothing(self, bench: Bench) -> None:
        session = await bench.session(ttl=1_000)
        await bench.renew(session, '{"n":1}')
        bench.clock.advance(1)
        before = await bench.store.sessions()
        assert await bench.renew(session, '{"n":2}') == Renewal(alive=False)
        assert await bench.store.sessions() == before

    async def test_an_ended_session_cannot_be_renewed(self, bench: Bench) -> None:
        session = await bench.session()
        await bench.end(session)
        assert await bench.renew(session) == Renewal(alive=False)

    async def test_a_session_that_never_was_is_not_alive(self, bench: Bench) -> None:
        assert await bench.store.renew(987_654) == Renewal(alive=False)

    async def test_a_snapshot_replaces_the_one_before_and_none_keeps_it(self, bench: Bench) -> None:
        for given, kept in (('{"workers":[]}', '{"workers":[]}'), (None, '{"workers":[]}'), ('"é\\n"', '"é\\n"')):
            await bench.renew(bench.me, given)
            (shown,) = await bench.store.sessions()
            assert shown.snapshot == kept

    async def test_asked_cancels_are_told_until_they_are_settled(self, bench: Bench) -> None:
        claims = [await bench.started() for _ in range(3)]
        await bench.cancel(by(id=[claims[0].id, claims[2].id]))
        for _ in range(2):
            renewal = await bench.renew(bench.me)
            assert sorted(renewal.cancels) == [(claims[0].id, claims[0].token), (claims[2].id, claims[2].token)]
        await bench.complete(claims[0])
        assert (await bench.renew(bench.me)).cancels == ((claims[2].id, claims[2].token),)
        await bench.report(claims[2], Released())
        assert (await bench.renew(bench.me)).cancels == ()

    async def test_a_session_hears_only_of_its_own_claims(self, bench: Bench) -> None:
        other = await bench.session("job")
        claim = await bench.started()
        await bench.cancel(claim.id)
        assert (await bench.renew(other)).cancels == ()

    async def test_the_newest_version_of_desired_state_is_told(self, bench: Bench) -> None:
        assert (await bench.renew(bench.me)).desired == 0
        version = await bench.store.wish("pool.a", '{"size":3}')
        assert (await bench.renew(bench.me)).desired == version

    async def test_one_renewal_keeps_all_claims(self, bench: Bench) -> None:
        session = await bench.session("job", ttl=1_000)
        await bench.put(*(bench.new() for _ in range(5)))
        claims = await bench.claim(5, session=session)
        bench.clock.advance("999us")
        await bench.renew(session)
        bench.clock.advance("999us")
        assert (await bench.reclaim()).lost == 0
        assert [await bench.complete(claim) for claim in claims] == [APPLIED] * 5
        assert (await bench.queue()).counts == {State.COMPLETED: 5}
