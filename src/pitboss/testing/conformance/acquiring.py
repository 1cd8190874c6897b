"""Leases outside tasks, and further uses of a member that is held."""

import pytest

from pitboss.model.duration import SECOND, span
from pitboss.model.errors import StaleLease
from pitboss.model.resource import Leased, Limits, NewResource, Report, Shortage, Stage, Strategy, Want
from pitboss.model.session import Reclaimed
from pitboss.model.task import Token
from pitboss.testing.conformance.bench import Bench
from pitboss.testing.conformance.scarcity import (
    BLOCKED,
    FAULTY,
    OK,
    POOL,
    QUEUE,
    UNLIMITED,
    asked,
    contested,
    done,
    given,
    limits,
    line_up,
    member,
    members,
    pool,
    remove,
    served,
)
from pitboss.testing.conformance.waiting import SOON, silence

MINUTE = span("1m")


async def got(bench: Bench, lease: str = "l1", want: Want | None = None, hold: int = MINUTE) -> Leased:
    """A lease, which must be granted at once."""
    leased = await bench.store.acquire(POOL, want or Want(), hold, lease=lease)
    await bench.look()
    assert isinstance(leased, Leased), f"no member was granted: {leased}"
    return leased


async def none(bench: Bench, lease: str = "l9", want: Want | None = None) -> Shortage:
    shortage = await bench.store.acquire(POOL, want or Want(), MINUTE, lease=lease)
    await bench.look()
    assert isinstance(shortage, Shortage), f"a member was granted: {shortage}"
    return shortage


async def gave_back(bench: Bench, lease: str = "l1", report: Report | None = None) -> bool:
    released = await bench.store.release(lease, report)
    await bench.look()
    return released


class Acquiring:
    async def test_a_lease_says_what_it_is(self, bench: Bench) -> None:
        new = NewResource(name="a", fields='{"n":1}', secrets={"s": "x"}, labels=("eu",), valid_until=bench.now + 5)
        await pool(bench, new, limits=Limits(guard=9))
        assert await got(bench) == Leased(
            pool=POOL,
            name="a",
            fields=new.fields,
            secrets=new.secrets,
            labels=new.labels,
            leased_at=bench.now,
            valid_until=new.valid_until,
            guard=9,
            lease="l1",
            expires_at=bench.now + MINUTE,
        )
        shown = await member(bench, "a")
        assert (shown.in_use, shown.record.uses, shown.stage) == (1, 1, Stage.BUSY)

    async def test_a_lease_is_chosen_as_a_claim_would_be(self, bench: Bench) -> None:
        await pool(bench, "b", NewResource(name="c", labels=("eu",)), "a", strategy=Strategy.ROUND_ROBIN)
        assert (await got(bench, "l1", Want(labels=("eu",)))).name == "c"
        assert [(await got(bench, lease)).name for lease in ("l2", "l3")] == ["a", "b"]

    async def test_a_key_of_a_lease_keeps_its_member(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        await got(bench, "l1", Want(key="ann"))
        await gave_back(bench, "l1")
        bench.clock.advance(1)
        assert (await got(bench, "l2", Want(key="ann"))).name == "a"
        assert (await none(bench, "l3", Want(key="ann"))).why == "none fits"

    async def test_leases_and_claims_share_the_members(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        await got(bench)
        claimed = await contested(bench, 2)
        assert given(claimed.claims) == ["b"]
        assert (await none(bench)).why == "all busy"

    async def test_a_lease_keeps_the_limits(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(2, 10)]))
        await got(bench, "l1")
        await got(bench, "l2")
        assert await none(bench) == Shortage(pool=POOL, why="all away", until=bench.now + 10 * SECOND)

    async def test_a_shortage_writes_nothing(self, bench: Bench) -> None:
        await pool(bench, "a")
        await got(bench)
        before = await members(bench)
        await none(bench)
        assert await members(bench) == before
        assert not await gave_back(bench, "l9")

    async def test_an_unknown_pool_has_no_members(self, bench: Bench) -> None:
        shortage = await bench.store.acquire("nowhere", Want(), MINUTE, lease="l1")
        assert shortage == Shortage(pool="nowhere", why="no members")

    async def test_asking_again_under_the_same_name_is_the_same_lease(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        first = await got(bench)
        before = await members(bench)
        bench.clock.advance(1)
        assert await got(bench) == first
        assert await members(bench) == before

    async def test_a_name_may_be_used_again_afterwards(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        await got(bench)
        await gave_back(bench)
        bench.clock.advance(1)
        again = await got(bench)
        assert (again.name, again.leased_at) == ("b", bench.now)

    async def test_a_lease_is_given_back_once(self, bench: Bench) -> None:
        await pool(bench, "a")
        await got(bench)
        assert await gave_back(bench, report=OK)
        shown = await member(bench, "a")
        assert (shown.in_use, shown.stage, shown.record.ok) == (0, Stage.READY, 1)
        await got(bench, "l2")
        assert not await gave_back(bench, "l1", FAULTY)
        assert not await gave_back(bench, "never", FAULTY)
        shown = await member(bench, "a")
        assert (shown.in_use, shown.record.failures) == (1, 0)

    async def test_what_a_lease_came_to_counts_for_its_member(self, bench: Bench) -> None:
        await pool(bench, "a", cooldown=MINUTE)
        await got(bench)
        await gave_back(bench, report=BLOCKED)
        shown = await member(bench, "a")
        assert (shown.record.failures, shown.available_at) == (1, bench.now + MINUTE)

    async def test_a_lease_that_is_given_back_is_heard(self, bench: Bench) -> None:
        await pool(bench, "a")
        await got(bench)
        await line_up(bench, 1)
        await silence(bench.store)
        await gave_back(bench)
        assert await bench.store.wait([QUEUE], SOON)

    async def test_a_lease_on_a_member_that_was_removed_ends_quietly(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        await got(bench)
        await remove(bench, "a")
        assert await gave_back(bench, report=FAULTY)
        assert [one.in_use for one in await members(bench)] == [0]


class LeaseTimes:
    async def test_a_lease_past_its_time_is_given_back_by_the_sweep(self, bench: Bench) -> None:
        await pool(bench, "a")
        await got(bench)
        bench.clock.advance("59999999us")
        assert await bench.reclaim() == Reclaimed()
        bench.clock.advance("1us")
        assert await bench.reclaim() == Reclaimed(leases=1)
        shown = await member(bench, "a")
        assert (shown.in_use, shown.stage, shown.record.last_outcome) == (0, Stage.READY, None)
        assert await bench.reclaim() == Reclaimed()

    async def test_a_lease_past_its_time_is_not_held(self, bench: Bench) -> None:
        await pool(bench, "a")
        await got(bench)
        bench.clock.advance("1m")
        assert await bench.store.extend("l1", MINUTE) is None
        assert not await gave_back(bench, report=FAULTY)
        with pytest.raises(StaleLease):
            await bench.store.use("l1")
        assert (await member(bench, "a")).record.failures == 0

    async def test_a_name_whose_time_is_over_gets_a_new_lease(self, bench: Bench) -> None:
        await pool(bench, "a")
        await got(bench)
        bench.clock.advance("1m")
        again = await got(bench)
        assert (again.leased_at, again.expires_at) == (bench.now, bench.now + MINUTE)
        assert ((await member(bench, "a")).in_use, (await member(bench, "a")).record.uses) == (1, 2)
        assert await bench.reclaim() == Reclaimed()

    async def test_a_lease_is_extended_from_now(self, bench: Bench) -> None:
        await pool(bench, "a")
        await got(bench)
        bench.clock.advance("50s")
        assert await bench.store.extend("l1", 2 * MINUTE) == bench.now + 2 * MINUTE
        bench.clock.advance("119s")
        assert await bench.reclaim() == Reclaimed()
        assert await bench.store.extend("l1", MINUTE) == bench.now + MINUTE
        assert (await got(bench)).expires_at == bench.now + MINUTE

    async def test_a_lease_that_is_not_held_cannot_be_extended(self, bench: Bench) -> None:
        await pool(bench, "a")
        assert await bench.store.extend("l1", MINUTE) is None
        await got(bench)
        await gave_back(bench)
        assert await bench.store.extend("l1", MINUTE) is None

    async def test_a_sweep_leaves_live_leases_and_the_claims_alone(self, bench: Bench) -> None:
        await pool(bench, "a", "b", "c")
        await got(bench, "l1", hold=SECOND)
        await got(bench, "l2")
        await served(bench)
        bench.clock.advance(1)
        assert await bench.reclaim() == Reclaimed(leases=1)
        assert [one.in_use for one in await members(bench)] == [0, 1, 1]

    async def test_a_lease_that_the_sweep_took_is_heard(self, bench: Bench) -> None:
        await pool(bench, "a")
        await got(bench)
        await line_up(bench, 1)
        bench.clock.advance("1m")
        await silence(bench.store)
        await bench.reclaim()
        assert await bench.store.wait([QUEUE], SOON)
        assert given((await asked(bench)).claims) == ["a"]


class FurtherUses:
    async def test_a_further_use_counts(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(3, 60)]))
        await got(bench)
        bench.clock.advance(1)
        assert await bench.store.use("l1") == bench.now
        shown = await member(bench, "a")
        assert (shown.record.uses, shown.in_use, shown.last_used_at) == (2, 1, bench.now)

    async def test_a_further_use_keeps_the_limits(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(2, 60)]))
        until = bench.now + 60 * SECOND
        await got(bench)
        bench.clock.advance(1)
        await bench.store.use("l1")
        answer = await bench.store.use("l1")
        assert isinstance(answer, Shortage)
        assert (answer.pool, answer.until) == (POOL, until)
        assert (await member(bench, "a")).record.uses == 2

    async def test_a_further_use_needs_no_room_beside_its_own(self, bench: Bench) -> None:
        await pool(bench, "a", limits=Limits(concurrency=1, min_delay=SECOND, use_within=0))
        await got(bench)
        answer = await bench.store.use("l1")
        assert isinstance(answer, Shortage)
        assert answer.until == bench.now + SECOND
        bench.clock.advance(1)
        assert await bench.store.use("l1") == bench.now

    async def test_a_claim_uses_its_member_again(self, bench: Bench) -> None:
        await pool(bench, "a", limits=UNLIMITED)
        claim = await served(bench)
        bench.clock.advance(1)
        assert await bench.store.use(claim.token, claim.id) == bench.now
        assert (await member(bench, "a")).record.uses == 2
        await done(bench, claim)
        assert (await member(bench, "a")).in_use == 0

    async def test_a_lease_that_was_given_back_has_no_uses(self, bench: Bench) -> None:
        await pool(bench, "a")
        with pytest.raises(StaleLease):
            await bench.store.use("l1")
        await got(bench)
        await gave_back(bench)
        with pytest.raises(StaleLease):
            await bench.store.use("l1")

    async def test_a_claim_that_is_over_has_no_uses(self, bench: Bench) -> None:
        await pool(bench, "a", limits=UNLIMITED)
        claim = await served(bench)
        with pytest.raises(StaleLease):
            await bench.store.use(Token(claim.token.session, 9), claim.id)
        await done(bench, claim)
        with pytest.raises(StaleLease):
            await bench.store.use(claim.token, claim.id)

    async def test_a_dead_session_has_no_uses(self, bench: Bench) -> None:
        await pool(bench, "a", limits=UNLIMITED)
        claim = await served(bench)
        await bench.end(bench.me)
        with pytest.raises(StaleLease):
            await bench.store.use(claim.token, claim.id)

    async def test_a_claim_without_a_member_has_no_uses(self, bench: Bench) -> None:
        claim = await bench.started()
        with pytest.raises(StaleLease):
            await bench.store.use(claim.token, claim.id)
