"""Reports on members: refusals cool them, failures in a row put them on the blacklist, some failures are forgiven."""

import pytest

from pitboss.model.duration import SECOND
from pitboss.model.outcome import TimedOut
from pitboss.model.resource import HOUR, MINUTE, Limits, Report, ResourceOutcome, Stage
from pitboss.model.states import State
from pitboss.model.task import Claim
from pitboss.testing.conformance.bench import BROKEN, Bench
from pitboss.testing.conformance.scarcity import (
    BLOCKED,
    FAULTY,
    LIMITED,
    NOT_MINE,
    OK,
    asked,
    contested,
    done,
    failed,
    given,
    handed_on,
    member,
    members,
    pool,
    served,
    wait_for_one,
)


def _after(seconds: int) -> Report:
    return Report(outcome=ResourceOutcome.RATE_LIMITED, retry_after=seconds * SECOND)


def _at(destination: str, outcome: ResourceOutcome = ResourceOutcome.BLOCKED) -> Report:
    return Report(outcome=outcome, destination=destination)


async def _failures(bench: Bench) -> list[int]:
    return [one.record.failures for one in await members(bench)]


class Reports:
    async def test_a_good_use_is_counted(self, bench: Bench) -> None:
        await pool(bench, "a")
        claim = await served(bench)
        bench.clock.advance(1)
        await done(bench, claim, OK)
        record = (await member(bench, "a")).record
        assert (record.uses, record.ok, record.last_ok_at, record.last_outcome) == (1, 1, bench.now, "ok")

    async def test_a_good_use_ends_a_row_of_failures(self, bench: Bench) -> None:
        await pool(bench, "a", max_failures=3)
        for report in (FAULTY, FAULTY, OK, FAULTY, FAULTY):
            await failed(bench, await served(bench), report)
        record = (await member(bench, "a")).record
        assert (record.failures, record.failed, record.blacklistings) == (2, 4, 0)

    async def test_a_refusal_cools_the_member_as_long_as_it_was_told(self, bench: Bench) -> None:
        await pool(bench, "a")
        claim = await served(bench)
        bench.clock.advance(1)
        await handed_on(bench, claim, _after(90))
        shown = await member(bench, "a")
        assert (shown.stage, shown.available_at) == (Stage.AWAY, bench.now + 90 * SECOND)
        assert (shown.record.cooldown_until, shown.record.refused) == (bench.now + 90 * SECOND, 1)
        assert (shown.record.failures, shown.record.failed) == (0, 0)

    async def test_a_refusal_costs_the_task_no_attempt(self, bench: Bench) -> None:
        await pool(bench, "a")
        claim = await served(bench)
        await handed_on(bench, claim, _after(90))
        task = await bench.task(claim.id)
        assert (task.state, task.attempts, task.rotations) == (State.PENDING, 0, 1)
        claimed = await asked(bench)
        assert (claimed.claims, claimed.next_due) == ([], bench.now + 90 * SECOND)

    async def test_a_cooldown_is_never_made_shorter(self, bench: Bench) -> None:
        await pool(bench, "a", limits=Limits(concurrency=2))
        one, other = (await contested(bench, 2)).claims
        await handed_on(bench, one, _after(90))
        await handed_on(bench, other, _after(5))
        assert (await member(bench, "a")).available_at == bench.now + 90 * SECOND

    async def test_a_cooldown_is_no_longer_than_its_cap(self, bench: Bench) -> None:
        await pool(bench, "a", cooldown=MINUTE, cooldown_cap=2 * MINUTE)
        await handed_on(bench, await served(bench), _after(10_000))
        assert (await member(bench, "a")).available_at == bench.now + 2 * MINUTE

    @pytest.mark.parametrize("report", [LIMITED, BLOCKED])
    async def test_refusals_without_a_time_double_the_cooldown(self, bench: Bench, report: Report) -> None:
        await pool(bench, "a", cooldown=MINUTE, cooldown_cap=5 * MINUTE, max_failures=9)
        pauses = []
        for _ in range(4):
            await done(bench, await served(bench), report)
            pauses.append(((await member(bench, "a")).available_at - bench.now) // MINUTE)
            bench.clock.advance_to((await member(bench, "a")).available_at)
        assert pauses == [1, 2, 4, 5]

    async def test_a_good_use_ends_the_doubling(self, bench: Bench) -> None:
        await pool(bench, "a", cooldown=MINUTE)
        for report in (LIMITED, OK):
            await done(bench, await served(bench), report)
            bench.clock.advance_to((await member(bench, "a")).available_at)
        await done(bench, await served(bench), LIMITED)
        assert (await member(bench, "a")).available_at == bench.now + MINUTE

    async def test_a_block_is_a_failure_too(self, bench: Bench) -> None:
        await pool(bench, "a", cooldown=MINUTE)
        await failed(bench, await served(bench), BLOCKED)
        shown = await member(bench, "a")
        assert (shown.record.failures, shown.stage, shown.available_at) == (1, Stage.AWAY, bench.now + MINUTE)

    async def test_an_error_of_the_member_is_remembered(self, bench: Bench) -> None:
        await pool(bench, "a")
        await failed(bench, await served(bench), FAULTY)
        shown = await member(bench, "a")
        assert (shown.record.failures, shown.stage) == (1, Stage.READY)
        assert (shown.record.last_error, shown.record.last_error_at) == ("connection refused", bench.now)

    async def test_an_error_of_the_task_leaves_the_member_as_it_was(self, bench: Bench) -> None:
        await pool(bench, "a", max_failures=2)
        await failed(bench, await served(bench), FAULTY)
        before = (await member(bench, "a")).record
        await failed(bench, await served(bench), NOT_MINE)
        record = (await member(bench, "a")).record
        assert (record.failures, record.failed, record.ok) == (before.failures, before.failed, before.ok)
        assert record.last_outcome == "task_error"

    async def test_no_report_says_nothing(self, bench: Bench) -> None:
        await pool(bench, "a", max_failures=2)
        await failed(bench, await served(bench), FAULTY)
        before = (await member(bench, "a")).record
        await bench.report(await served(bench), TimedOut(BROKEN))
        record = (await member(bench, "a")).record
        assert (record.failures, record.failed, record.last_outcome) == (1, before.failed, before.last_outcome)


class Blacklisting:
    async def test_failures_in_a_row_put_a_member_on_the_blacklist(self, bench: Bench) -> None:
        await pool(bench, "a", "b", max_failures=2, blacklist=HOUR // 2)
        await _ruined(bench, "a", 2)
        shown = await member(bench, "a")
        assert (shown.stage, shown.available_at) == (Stage.AWAY, bench.now + HOUR // 2)
        assert (shown.record.blacklistings, shown.record.failures) == (1, 0)

    async def test_after_its_time_one_use_is_a_probe(self, bench: Bench) -> None:
        await pool(bench, "a", "b", max_failures=1, limits=Limits(concurrency=3), blacklist=MINUTE)
        await _ruined(bench, "a", 1)
        bench.clock.advance("1m")
        claims = (await contested(bench, 6)).claims
        assert sorted(map(str, given(claims))) == ["a", "b", "b", "b"]

    async def test_a_probe_that_is_good_ends_the_probation(self, bench: Bench) -> None:
        await pool(bench, "a", "b", max_failures=1, limits=Limits(concurrency=3), blacklist=MINUTE)
        await _ruined(bench, "a", 1)
        bench.clock.advance("1m")
        await done(bench, await _given(bench, "a"), OK)
        assert (await member(bench, "a")).record.blacklistings == 0
        assert given((await contested(bench, 6)).claims).count("a") == 3

    async def test_a_probe_that_fails_doubles_the_time(self, bench: Bench) -> None:
        await pool(bench, "a", "b", max_failures=1, blacklist=MINUTE, blacklist_cap=3 * MINUTE)
        pauses = []
        for _ in range(3):
            await _ruined(bench, "a", 1)
            pauses.append(((await member(bench, "a")).available_at - bench.now) // MINUTE)
            bench.clock.advance_to((await member(bench, "a")).available_at)
        assert pauses == [1, 2, 3]

    async def test_no_more_than_a_share_of_the_pool_is_on_the_blacklist(self, bench: Bench) -> None:
        await pool(bench, "a", "b", "c", "d", max_failures=1, max_ejected=0.5, cooldown=MINUTE)
        for name in "abcd":
            await _ruined(bench, name, 1)
        shown = await members(bench)
        assert [one.record.blacklistings for one in shown] == [1, 1, 0, 0]
        assert [one.record.cooldown_until for one in shown[2:]] == [bench.now + MINUTE] * 2

    async def test_one_member_always_stays(self, bench: Bench) -> None:
        await pool(bench, "a", max_failures=1, max_ejected=1.0, cooldown=MINUTE)
        await _ruined(bench, "a", 1)
        shown = await member(bench, "a")
        assert (shown.record.blacklistings, shown.available_at) == (0, bench.now + MINUTE)

    async def test_a_member_that_is_back_makes_room_on_the_blacklist(self, bench: Bench) -> None:
        await pool(bench, "a", "b", max_failures=1, blacklist=MINUTE)
        await _ruined(bench, "a", 1)
        bench.clock.advance("1m")
        await done(bench, await _given(bench, "a"), OK)
        await _ruined(bench, "b", 1)
        assert [one.record.blacklistings for one in await members(bench)] == [0, 1]


class Forgiveness:
    async def test_a_task_on_which_three_members_fail_is_to_blame(self, bench: Bench) -> None:
        await pool(bench, "a", "b", "c", "d")
        task = await wait_for_one(bench)
        counts = []
        for _ in range(3):
            (claim,) = (await asked(bench)).claims
            await handed_on(bench, claim, FAULTY)
            counts.append(await _failures(bench))
            bench.clock.advance(1)
        assert counts == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]
        assert (await bench.task(task.id)).tried == ("a", "b", "c")

    async def test_members_are_forgiven_once(self, bench: Bench) -> None:
        await pool(bench, "a", "b", "c", "d", max_failures=9)
        await failed(bench, await served(bench), FAULTY)
        await failed(bench, await _given(bench, "b"), FAULTY)
        await wait_for_one(bench)
        bench.clock.advance(1)
        for name in "cdab":
            (claim,) = (await asked(bench)).claims
            assert given([claim]) == [name]
            await handed_on(bench, claim, FAULTY)
            bench.clock.advance(1)
        assert await _failures(bench) == [1, 1, 0, 0]

    async def test_what_was_not_counted_is_not_forgiven(self, bench: Bench) -> None:
        await pool(bench, "a", "b", "c", max_failures=9)
        for name in "abc":
            await failed(bench, await _given(bench, name), FAULTY)
        task = await wait_for_one(bench)
        for report in (NOT_MINE, NOT_MINE, FAULTY):
            bench.clock.advance(1)
            (claim,) = (await asked(bench)).claims
            await handed_on(bench, claim, report)
        assert sorted((await bench.task(task.id)).tried) == ["a", "b", "c"]
        assert await _failures(bench) == [1, 1, 1]

    async def test_a_destination_that_three_members_fail_on_is_to_blame(self, bench: Bench) -> None:
        await pool(bench, "a", "b", "c", "d", cooldown=MINUTE)
        counts = []
        for name in "abcd":
            await failed(bench, await _given(bench, name), _at("shop"))
            counts.append(await _failures(bench))
        assert counts == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]

    async def test_what_a_failure_led_to_stays(self, bench: Bench) -> None:
        await pool(bench, "a", "b", "c", cooldown=MINUTE)
        for name in "abc":
            await failed(bench, await _given(bench, name), _at("shop"))
        cooling = [one.record.cooldown_until for one in await members(bench)]
        assert cooling == [bench.now + MINUTE, bench.now + MINUTE, 0]

    async def test_each_destination_is_counted_by_itself(self, bench: Bench) -> None:
        await pool(bench, "a", "b", "c", cooldown=MINUTE)
        for name, where in (("a", "shop"), ("b", "bank"), ("c", "shop")):
            await failed(bench, await _given(bench, name), _at(where))
        assert await _failures(bench) == [1, 1, 1]

    async def test_a_member_that_fails_again_is_one_member(self, bench: Bench) -> None:
        await pool(bench, "a", "b", max_failures=9)
        for name in "aab":
            await failed(bench, await _given(bench, name), _at("shop", ResourceOutcome.RESOURCE_ERROR))
        assert await _failures(bench) == [2, 1]

    async def test_a_destination_that_answers_one_member_is_not_to_blame(self, bench: Bench) -> None:
        await pool(bench, "a", "b", "c", "d", cooldown=MINUTE)
        for name, outcome in (("a", "blocked"), ("b", "blocked"), ("d", "ok"), ("c", "blocked")):
            await failed(bench, await _given(bench, name), _at("shop", ResourceOutcome(outcome)))
        assert await _failures(bench) == [1, 1, 1, 0]

    async def test_failures_on_a_destination_are_forgotten_after_a_while(self, bench: Bench) -> None:
        await pool(bench, "a", "b", "c", cooldown=MINUTE)
        for name in "ab":
            await failed(bench, await _given(bench, name), _at("shop"))
        bench.clock.advance("11m")
        await failed(bench, await _given(bench, "c"), _at("shop"))
        assert await _failures(bench) == [1, 1, 1]

    async def test_a_refusal_by_rate_is_no_strike(self, bench: Bench) -> None:
        await pool(bench, "a", "b", "c", cooldown=MINUTE)
        for name in "ab":
            await failed(bench, await _given(bench, name), _at("shop", ResourceOutcome.RATE_LIMITED))
        await failed(bench, await _given(bench, "c"), _at("shop"))
        assert await _failures(bench) == [0, 0, 1]


async def _given(bench: Bench, name: str) -> Claim:
    """A claim that holds this member. Claims with other members end without a report."""
    for _ in range(9):
        claim = await served(bench)
        if given([claim]) == [name]:
            return claim
        bench.clock.advance("1us")
        await failed(bench, claim, None)
    raise AssertionError(f"member {name} was never given")


async def _ruined(bench: Bench, name: str, failures: int) -> None:
    """Let the member fail that often in a row."""
    for _ in range(failures):
        await failed(bench, await _given(bench, name), FAULTY)
