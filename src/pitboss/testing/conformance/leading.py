"""Leading: one session at a time leads, under terms that only grow; no other session uses its term."""

import asyncio

import pytest

from pitboss.engines.protocol import Leader
from pitboss.model.duration import SECOND
from pitboss.model.errors import NotLeader, SessionLost
from pitboss.model.filter import EVERYTHING
from pitboss.model.queue import Changed
from pitboss.model.session import Lead, Session, SessionInfo
from pitboss.testing.conformance.bench import Bench

CROWD = 8


class Leading:
    async def test_a_new_store_has_no_leader(self, bench: Bench) -> None:
        assert isinstance(bench.store, Leader)
        assert await bench.store.leader() is None

    async def test_the_first_to_campaign_leads(self, bench: Bench) -> None:
        session = await bench.store.open_session(SessionInfo(host="höst-1"))
        lead = await bench.store.campaign(session.number)
        assert lead == Lead(term=1, session=session.number, host="höst-1", mine=True)
        assert await bench.store.leader() == Lead(term=1, session=session.number, host="höst-1")

    async def test_the_second_learns_which_session_leads(self, bench: Bench) -> None:
        other = await bench.store.open_session(SessionInfo(host="elsewhere"))
        await _led_by(bench, bench.me)
        told = await bench.store.campaign(other.number)
        assert told == Lead(term=1, session=bench.me.number, host="here", mine=False)

    async def test_the_leader_is_told_its_own_term_as_often_as_it_asks(self, bench: Bench) -> None:
        leads = [await bench.store.campaign(bench.me.number) for _ in range(3)]
        assert leads == [Lead(term=1, session=bench.me.number, host="here", mine=True)] * 3

    async def test_the_lead_goes_on_while_the_session_is_renewed(self, bench: Bench) -> None:
        leader, other = await _brief(bench), await bench.session()
        await _led_by(bench, leader)
        for _ in range(5):
            bench.clock.advance_to(bench.now + leader.info.ttl - 1)
            assert (await bench.renew(leader)).alive
            assert (await bench.renew(other)).alive
        assert (await bench.store.campaign(other.number)).session == leader.number

    async def test_another_leads_as_soon_as_the_leader_has_ended(self, bench: Bench) -> None:
        leader = await bench.session()
        await _led_by(bench, leader)
        await bench.end(leader)
        assert await bench.store.leader() is None
        assert await bench.store.campaign(bench.me.number) == _mine(bench.me, term=2)

    async def test_another_leads_when_the_leader_has_expired_and_not_before(self, bench: Bench) -> None:
        leader = await _brief(bench)
        await _led_by(bench, leader)
        bench.clock.advance_to(leader.expires_at - 1)
        assert (await bench.store.campaign(bench.me.number)).session == leader.number
        bench.clock.advance(1)
        assert await bench.store.leader() is None
        assert await bench.store.campaign(bench.me.number) == _mine(bench.me, term=2)

    async def test_a_leader_that_was_paused_is_told_that_it_is_over(self, bench: Bench) -> None:
        leader = await _brief(bench)
        await _led_by(bench, leader)
        bench.clock.advance_to(leader.expires_at)
        await _led_by(bench, bench.me)
        with pytest.raises(SessionLost) as lost:
            await bench.store.campaign(leader.number)
        assert lost.value.session == leader.number
        assert await bench.store.leader() == Lead(term=2, session=bench.me.number, host="here")

    async def test_a_paused_leader_that_returns_as_a_new_session_learns_which_one_leads(self, bench: Bench) -> None:
        leader = await _brief(bench)
        await _led_by(bench, leader)
        bench.clock.advance_to(leader.expires_at)
        await _led_by(bench, bench.me)
        again = await bench.session()
        assert await bench.store.campaign(again.number) == Lead(term=2, session=bench.me.number, host="here")

    async def test_a_session_that_is_over_cannot_campaign(self, bench: Bench) -> None:
        ended, expired = await bench.session(), await _brief(bench)
        await bench.end(ended)
        bench.clock.advance_to(expired.expires_at)
        for number in (ended.number, expired.number, 987_654):
            with pytest.raises(SessionLost):
                await bench.store.campaign(number)
        assert await bench.store.leader() is None
        assert await bench.store.campaign(bench.me.number) == _mine(bench.me, term=1)

    async def test_the_death_of_another_changes_nothing(self, bench: Bench) -> None:
        other = await bench.session()
        await _led_by(bench, bench.me)
        await bench.end(other)
        assert await bench.store.leader() == Lead(term=1, session=bench.me.number, host="here")

    async def test_a_session_that_resigns_leads_no_more(self, bench: Bench) -> None:
        other = await bench.session()
        await _led_by(bench, bench.me)
        await bench.store.resign(bench.me.number)
        assert await bench.store.leader() is None
        assert await bench.store.campaign(other.number) == _mine(other, term=2)
        assert (await bench.store.campaign(bench.me.number)).session == other.number

    async def test_resigning_twice_or_without_leading_is_harmless(self, bench: Bench) -> None:
        other = await bench.session()
        await bench.store.resign(bench.me.number)
        await _led_by(bench, bench.me)
        for number in (other.number, 987_654):
            await bench.store.resign(number)
        assert await bench.store.leader() == Lead(term=1, session=bench.me.number, host="here")
        for _ in range(2):
            await bench.store.resign(bench.me.number)
        assert await bench.store.leader() is None

    async def test_a_session_that_resigned_may_lead_again_under_a_new_term(self, bench: Bench) -> None:
        await _led_by(bench, bench.me)
        await bench.store.resign(bench.me.number)
        assert await bench.store.campaign(bench.me.number) == _mine(bench.me, term=2)

    async def test_no_term_is_used_twice(self, bench: Bench) -> None:
        terms = []
        for turn in range(9):
            session = await _brief(bench)
            terms.append((await bench.store.campaign(session.number)).term)
            match turn % 3:
                case 0:
                    await bench.end(session)
                case 1:
                    bench.clock.advance_to(session.expires_at)
                case _:
                    await bench.store.resign(session.number)
        assert terms == list(range(1, 10))

    async def test_terms_go_on_when_the_leader_s_session_is_forgotten(self, bench: Bench) -> None:
        leader = await _brief(bench)
        await _led_by(bench, leader)
        bench.clock.advance("3h")
        fresh = await bench.session()
        await bench.reclaim()
        assert await bench.store.leader() is None
        assert await bench.store.campaign(fresh.number) == _mine(fresh, term=2)

    async def test_of_many_sessions_that_campaign_at_once_one_leads(self, bench: Bench) -> None:
        engines = [await bench.open_engine() for _ in range(CROWD // 2)] * 2
        for term in range(1, 4):
            sessions = [await bench.session() for _ in range(CROWD)]
            pairs = zip(engines, sessions, strict=True)
            leads = await asyncio.gather(*(engine.campaign(session.number) for engine, session in pairs))
            assert len({(lead.term, lead.session) for lead in leads}) == 1
            assert [lead.mine for lead in leads] == [lead.session == one.number for lead, one in _with(leads, sessions)]
            assert leads[0].term == term
            await bench.store.end_session(leads[0].session)

    async def test_every_engine_sees_the_leader(self, bench: Bench) -> None:
        other = await bench.open_engine()
        await _led_by(bench, bench.me)
        assert await other.leader() == Lead(term=1, session=bench.me.number, host="here")


class LeaderDuties:
    """Writes that only the leader may do."""

    async def test_the_leader_prunes_under_its_term(self, bench: Bench) -> None:
        await _finished(bench)
        lead = await _led_by(bench, bench.me)
        assert await bench.prune(term=lead.term) == Changed(changed=1)

    async def test_a_prune_without_a_term_needs_no_leader(self, bench: Bench) -> None:
        await _finished(bench)
        await _led_by(bench, await bench.session())
        assert await bench.prune() == Changed(changed=1)

    async def test_an_older_or_unknown_term_prunes_nothing(self, bench: Bench) -> None:
        await _finished(bench)
        first = await _led_by(bench, bench.me)
        await bench.store.resign(bench.me.number)
        second = await _led_by(bench, bench.me)
        for term in (0, first.term, second.term + 1):
            await _refused(bench, term)
        assert await bench.prune(term=second.term) == Changed(changed=1)

    async def test_no_term_prunes_while_no_session_leads(self, bench: Bench) -> None:
        await _finished(bench)
        for term in (0, 1):
            await _refused(bench, term)

    async def test_a_leader_that_expired_prunes_nothing_before_the_next_one_leads(self, bench: Bench) -> None:
        await _finished(bench)
        leader = await _brief(bench)
        lead = await _led_by(bench, leader)
        bench.clock.advance_to(leader.expires_at)
        await _refused(bench, lead.term)

    async def test_a_leader_that_ended_or_resigned_prunes_nothing(self, bench: Bench) -> None:
        await _finished(bench)
        leader = await bench.session()
        first = await _led_by(bench, leader)
        await bench.store.resign(leader.number)
        await _refused(bench, first.term)
        second = await _led_by(bench, leader)
        await bench.end(leader)
        await _refused(bench, second.term)

    async def test_the_refusal_says_what_to_do(self, bench: Bench) -> None:
        with pytest.raises(NotLeader) as refused:
            await bench.prune(term=7)
        assert refused.value.term == 7
        assert "7" in refused.value.what
        assert refused.value.why
        assert refused.value.fix

    async def test_one_term_at_most_prunes_while_the_lead_changes_hands(self, bench: Bench) -> None:
        """A prune that is refused deletes nothing; one that is not refused happened while its term lasted."""
        await _finished(bench)
        leader = await bench.session()
        lead = await _led_by(bench, leader)
        other = await bench.open_engine()
        pruned, _, followed = await asyncio.gather(
            bench.store.prune(EVERYTHING, term=lead.term),
            other.resign(leader.number),
            other.campaign(bench.me.number),
            return_exceptions=True,
        )
        assert isinstance(followed, Lead)
        assert isinstance(pruned, NotLeader) or pruned == Changed(changed=1)
        assert (await bench.store.count(EVERYTHING)).number == (1 if isinstance(pruned, NotLeader) else 0)


def _mine(session: Session, term: int) -> Lead:
    return Lead(term=term, session=session.number, host="here", mine=True)


def _with(leads: list[Lead], sessions: list[Session]) -> list[tuple[Lead, Session]]:
    return list(zip(leads, sessions, strict=True))


async def _brief(bench: Bench) -> Session:
    """A session that expires soon, long before the bench's own."""
    return await bench.session(ttl=5 * SECOND)


async def _led_by(bench: Bench, session: Session) -> Lead:
    lead = await bench.store.campaign(session.number)
    assert lead.mine, f"{lead} leads instead"
    return lead


async def _finished(bench: Bench) -> None:
    """A task that can be pruned."""
    await bench.complete(await bench.started())


async def _refused(bench: Bench, term: int) -> None:
    before = await bench.every_task()
    with pytest.raises(NotLeader):
        await bench.prune(term=term)
    assert await bench.every_task() == before
