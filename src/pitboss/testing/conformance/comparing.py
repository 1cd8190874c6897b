"""Members judged by comparison: a failure counts once the same task has succeeded with another member."""

import pytest

from pitboss.model.comparison import Evidence, evidence
from pitboss.model.outcome import Cancelled, Completed, Failed
from pitboss.model.outdone import SentAway
from pitboss.model.resource import HOUR, MINUTE, Entry, EntryKind, Limits, Report, Stage, Strategy
from pitboss.model.settlement import APPLIED, SettleAnswer, Settlement
from pitboss.model.task import Claim
from pitboss.testing.conformance.bench import BROKEN, Bench
from pitboss.testing.conformance.outcomes import transition_for
from pitboss.testing.conformance.scarcity import (
    BLOCKED,
    FAULTY,
    LIMITED,
    NOT_MINE,
    OK,
    asked,
    change,
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
from pitboss.testing.conformance.scarcity import add as add_members


class Comparing:
    async def test_a_task_that_succeeds_counts_for_its_member(self, bench: Bench) -> None:
        await pool(bench, "a")
        await done(bench, await served(bench))
        assert await _seen(bench) == [(0, 1)]

    @pytest.mark.parametrize("report", [NOT_MINE, FAULTY, BLOCKED])
    async def test_a_failure_counts_once_its_task_succeeds_with_another_member(
        self, bench: Bench, report: Report
    ) -> None:
        await pool(bench, "a", "b")
        await handed_on(bench, await served(bench), report)
        assert await _seen(bench) == [(0, 0), (0, 0)]
        (again,) = (await asked(bench)).claims
        await done(bench, again)
        assert await _seen(bench) == [(1, 1), (0, 1)]

    async def test_all_members_that_failed_the_task_are_outdone(self, bench: Bench) -> None:
        await pool(bench, "a", "b", "c")
        await wait_for_one(bench)
        for _ in range(2):
            (claim,) = (await asked(bench)).claims
            await handed_on(bench, claim, NOT_MINE)
            bench.clock.advance(1)
        (claim,) = (await asked(bench)).claims
        await done(bench, claim)
        assert await _seen(bench) == [(1, 1), (1, 1), (0, 1)]

    async def test_a_task_that_succeeds_with_the_member_it_failed_with_blames_none(self, bench: Bench) -> None:
        await pool(bench, "a")
        await handed_on(bench, await served(bench), NOT_MINE)
        (again,) = (await asked(bench)).claims
        await done(bench, again)
        assert await _seen(bench) == [(0, 1)]

    async def test_a_task_that_never_succeeds_counts_against_no_member(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        await handed_on(bench, await served(bench), NOT_MINE)
        (again,) = (await asked(bench)).claims
        await failed(bench, again, NOT_MINE)
        assert await _seen(bench) == [(0, 0), (0, 0)]

    async def test_a_member_whose_limit_was_reached_has_not_failed(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        await handed_on(bench, await served(bench), LIMITED)
        (again,) = (await asked(bench)).claims
        await done(bench, again)
        assert await _seen(bench) == [(0, 0), (0, 1)]

    async def test_a_handler_that_said_ok_and_then_raised_counts_neither_way(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        await handed_on(bench, await served(bench), NOT_MINE)
        (again,) = (await asked(bench)).claims
        await bench.report(again, Failed(BROKEN), report=OK)
        assert await _seen(bench) == [(0, 0), (0, 0)]
        assert (await bench.task(again.id)).tried == ("a",)

    @pytest.mark.parametrize("report", [FAULTY, NOT_MINE, None])
    async def test_a_completed_task_without_a_good_report_compares_nothing(
        self, bench: Bench, report: Report | None
    ) -> None:
        await pool(bench, "a", "b")
        await handed_on(bench, await served(bench), NOT_MINE)
        (again,) = (await asked(bench)).claims
        await done(bench, again, report)
        assert await _seen(bench) == [(0, 0), (0, 0)]

    async def test_a_cancelled_task_compares_nothing(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        await handed_on(bench, await served(bench), NOT_MINE)
        (again,) = (await asked(bench)).claims
        await bench.report(again, Cancelled("enough"), report=OK)
        assert await _seen(bench) == [(0, 0), (0, 0)]

    async def test_a_repeated_settlement_compares_once(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        again = await _second_try(bench)
        assert await done(bench, again) == await done(bench, again) == APPLIED
        assert await _seen(bench) == [(1, 1), (0, 1)]

    async def test_settlements_of_one_call_are_compared_in_turn(self, bench: Bench) -> None:
        await pool(bench, "a", "b", "c", limits=Limits(concurrency=None))
        tasks = [await wait_for_one(bench) for _ in range(3)]
        claims = (await asked(bench, 3)).claims
        for claim in claims:
            await handed_on(bench, claim, NOT_MINE)
        again = (await asked(bench, 3)).claims
        answers = await bench.settle(
            *(
                Settlement(
                    id=one.id,
                    token=one.token,
                    transition=transition_for("completed", one, bench.now),
                    report=OK,
                    resource=one.leased.id if one.leased else None,
                )
                for one in again
            )
        )
        assert answers == [APPLIED] * len(tasks)
        assert sum(failures for failures, _ in await _seen(bench)) == len(tasks)
        assert sum(uses for _, uses in await _seen(bench)) == 2 * len(tasks)

    async def test_a_member_that_is_gone_is_passed_over(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        again = await _second_try(bench)
        await bench.store.change_resources("proxies", ["a"], None)
        await done(bench, again)
        assert await _seen(bench) == [(0, 1)]

    async def test_a_reset_forgets_what_was_compared(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        await done(bench, await _second_try(bench))
        await change(bench, "a", reset=True)
        assert await _seen(bench) == [(0, 0), (0, 1)]


class SendingAway:
    async def test_a_member_that_others_outdo_is_put_on_the_blacklist(self, bench: Bench) -> None:
        await _pair(bench, blacklist=HOUR)
        answers = [await _outdone(bench, "a") for _ in range(3)]
        shown = await member(bench, "a")
        assert (shown.stage, shown.record.blacklistings) == (Stage.AWAY, 1)
        assert shown.available_at == shown.record.blacklisted_until == bench.now + HOUR
        why = "failed 3 of 3 tasks that then succeeded with others"
        assert answers == [APPLIED, APPLIED, APPLIED._replace(away=(SentAway("proxies/a", bench.now + HOUR, why),))]
        assert shown.record.history == (Entry(bench.now, EntryKind.BLACKLISTED, why, bench.now + HOUR),)

    async def test_a_member_that_mostly_works_stays(self, bench: Bench) -> None:
        await _pair(bench)
        for _ in range(10):
            await done(bench, await _given(bench, "a"))
        for _ in range(3):
            await _outdone(bench, "a")
        assert evidence((await member(bench, "a")).record.compared) == (3, 13)
        assert (await member(bench, "a")).record.blacklistings == 0

    async def test_one_fault_that_all_members_share_sends_none_away(self, bench: Bench) -> None:
        await _pair(bench)
        for _ in range(5):
            for name in "ab":
                assert await _outdone(bench, name) == APPLIED
        assert [one.record.blacklistings for one in await members(bench)] == [0, 0]

    async def test_a_good_probe_is_a_new_beginning(self, bench: Bench) -> None:
        await _pair(bench, blacklist=MINUTE)
        for _ in range(3):
            await _outdone(bench, "a")
        assert evidence((await member(bench, "a")).record.compared) == (3, 3)
        bench.clock.advance("1m")
        await done(bench, await _given(bench, "a"))
        record = (await member(bench, "a")).record
        assert (record.blacklistings, evidence(record.compared)) == (0, (0, 1))

    async def test_a_failed_probe_sends_it_away_for_longer(self, bench: Bench) -> None:
        await _pair(bench, blacklist=MINUTE)
        for _ in range(3):
            await _outdone(bench, "a")
        bench.clock.advance("1m")
        answer = await _outdone(bench, "a")
        assert [one.until for one in answer.away] == [bench.now + 2 * MINUTE]

    async def test_a_failure_from_before_the_blacklist_does_not_lengthen_it(self, bench: Bench) -> None:
        await _pair(bench, blacklist=HOUR, limits=Limits(concurrency=None))
        late = await _given(bench, "a")
        await bench.report(late, Failed(BROKEN), report=NOT_MINE)
        for _ in range(3):
            await _outdone(bench, "a")
        until = (await member(bench, "a")).record.blacklisted_until
        bench.clock.advance("1m")
        assert await _succeeded(bench, late.id) == APPLIED
        record = (await member(bench, "a")).record
        assert (record.blacklisted_until, record.blacklistings, evidence(record.compared)) == (until, 1, (4, 4))

    async def test_without_room_on_the_blacklist_it_cools_down(self, bench: Bench) -> None:
        await _pair(bench, cooldown=MINUTE, max_ejected=0.0)
        answers = [await _outdone(bench, "a") for _ in range(3)]
        shown = await member(bench, "a")
        assert (shown.record.blacklistings, shown.available_at) == (0, bench.now + MINUTE)
        assert [one.until for one in answers[-1].away] == [bench.now + MINUTE]

    async def test_members_that_are_disabled_are_no_measure(self, bench: Bench) -> None:
        await _pair(bench)
        await add_members(bench, "c")
        for _ in range(2):
            for name in "ab":
                await _outdone(bench, name)
        await change(bench, "c", enabled=False)
        await change(bench, "b", reset=True)
        answer = await _outdone(bench, "a")
        assert [one.resource for one in answer.away] == ["proxies/a"]


async def _pair(bench: Bench, **rules: object) -> None:
    await pool(bench, "a", "b", **{"strategy": Strategy.ROUND_ROBIN, "max_failures": 99} | rules)


async def _seen(bench: Bench) -> list[Evidence]:
    return [evidence(one.record.compared) for one in await members(bench)]


async def _second_try(bench: Bench) -> Claim:
    """A task that failed with the first member, claimed again."""
    await handed_on(bench, await served(bench), NOT_MINE)
    (again,) = (await asked(bench)).claims
    return again


async def _outdone(bench: Bench, name: str) -> SettleAnswer:
    """Let a task fail with this member, and then succeed with another one."""
    return await _succeeded(bench, await _failed_with(bench, name))


async def _failed_with(bench: Bench, name: str) -> str:
    claim = await _given(bench, name)
    await handed_on(bench, claim, NOT_MINE)
    return claim.id


async def _succeeded(bench: Bench, task: str) -> SettleAnswer:
    for _ in range(9):
        bench.clock.advance("1us")
        (claim,) = (await asked(bench)).claims
        if claim.id == task:
            return await bench.report(claim, Completed(), report=OK)
        await failed(bench, claim, None)
    raise AssertionError("the task was never given a member")


async def _given(bench: Bench, name: str) -> Claim:
    """A claim that holds this member. Claims with other members end without a report."""
    for _ in range(9):
        bench.clock.advance("1us")
        claim = await served(bench, priority=-1)
        if given([claim]) == [name]:
            return claim
        await failed(bench, claim, None)
    raise AssertionError(f"member {name} was never given")
