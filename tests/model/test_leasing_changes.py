"""When a member may be used again after a change of its rules, and that one refusal counts once."""

import msgspec

from pitboss.model.duration import SECOND, Moment
from pitboss.model.leasing import granted, moved, placed, restated
from pitboss.model.limits import Window
from pitboss.model.member_health import released
from pitboss.model.picking import added, nth_of, same_member
from pitboss.model.resource import Limits, NewResource, PoolRules, Record, Report, Resource, ResourceOutcome, Stage

NOW: Moment = 10_000 * SECOND
RESTING = PoolRules(limits=Limits(min_delay=10 * SECOND, delay_from="end"))


def _no_use(_: int) -> Moment | None:
    return None


def used_until(ended: Moment, rules: PoolRules = RESTING) -> Resource:
    return released(granted(Resource(pool="p", name="m"), rules, _no_use, NOW), rules, None, ended)


def test_a_rest_from_the_end_outlives_a_change_of_settings() -> None:
    ended = NOW + 3 * SECOND
    member = restated(used_until(ended), RESTING, _no_use, ended + SECOND)
    assert (member.stage, member.available_at) == (Stage.AWAY, ended + 10 * SECOND)


def test_a_longer_rest_from_the_end_counts_from_that_end() -> None:
    ended = NOW + 3 * SECOND
    longer = PoolRules(limits=Limits(min_delay=60 * SECOND, delay_from="end"))
    assert restated(used_until(ended), longer, _no_use, ended + SECOND).available_at == ended + 60 * SECOND


def test_rests_from_the_end_may_come_in_place_of_rests_from_the_start() -> None:
    from_start = PoolRules(limits=Limits(min_delay=10 * SECOND, use_within=0))
    ended = NOW + 3 * SECOND
    assert restated(used_until(ended, from_start), RESTING, _no_use, ended).available_at == ended + 10 * SECOND


def test_a_first_use_that_has_not_ended_has_no_rest_from_its_end() -> None:
    member = granted(Resource(pool="p", name="m"), RESTING, _no_use, NOW)
    shared = PoolRules(limits=msgspec.structs.replace(RESTING.limits, concurrency=2))
    assert restated(member, shared, _no_use, NOW + SECOND).stage is Stage.READY


def test_a_use_moved_after_the_windows_were_tightened_counts_the_uses_before_it() -> None:
    rules = PoolRules(limits=Limits(windows=(Window(1, 60 * SECOND),), use_within=0))
    member = Resource(pool="p", name="m", in_use=1, last_used_at=5 * SECOND)
    assert moved(member, rules, nth_of([4 * SECOND, 5 * SECOND]), 5 * SECOND, 6 * SECOND) == 64 * SECOND


def test_a_block_that_finds_no_room_on_the_blacklist_is_one_refusal() -> None:
    rules = PoolRules(max_failures=1, cooldown=60 * SECOND)
    member = granted(Resource(pool="p", name="m"), rules, _no_use, NOW)
    report = Report(outcome=ResourceOutcome.BLOCKED)
    record = released(member, rules, report, NOW, ejectable=False).record
    assert (record.cooldowns, record.cooldown_until) == (1, NOW + 60 * SECOND)


def test_without_a_gap_a_clock_that_is_set_back_delays_no_use() -> None:
    earlier = NOW - 3600 * SECOND
    for limits in (Limits(), Limits(delay_from="end")):
        free = PoolRules(limits=limits)
        member = used_until(NOW + SECOND, free)
        assert placed(member, free, earlier).stage is Stage.READY
        assert restated(member, free, _no_use, earlier).stage is Stage.READY


def test_a_lease_begun_under_a_clock_that_was_set_back_is_still_of_this_member() -> None:
    member = added("p", NewResource(name="m"), RESTING, 0, NOW)
    assert not same_member(member, NOW - SECOND)
    assert same_member(granted(member, RESTING, _no_use, NOW - SECOND), NOW - SECOND)


def test_uses_that_a_clock_set_back_calls_later_do_not_hold_up_a_window() -> None:
    rules = PoolRules(limits=Limits(windows=(Window(3, 5 * SECOND),), use_within=0))
    later = [NOW + 3600 * SECOND, NOW + 3601 * SECOND]
    member = granted(Resource(pool="p", name="m"), rules, nth_of(later), NOW)
    assert member.available_at == NOW + 5 * SECOND


def test_failures_of_many_at_once_put_a_member_on_the_blacklist_once() -> None:
    rules = PoolRules(limits=Limits(concurrency=8), max_failures=1, blacklist=60 * SECOND)
    record = all_at_once(rules, Report(outcome=ResourceOutcome.RESOURCE_ERROR))
    assert (record.failed, record.blacklistings, record.blacklisted_until) == (8, 1, NOW + 60 * SECOND)


def test_refusals_of_many_at_once_cool_a_member_once() -> None:
    rules = PoolRules(limits=Limits(concurrency=8), cooldown=60 * SECOND)
    record = all_at_once(rules, Report(outcome=ResourceOutcome.RATE_LIMITED))
    assert (record.refused, record.cooldowns, record.cooldown_until) == (8, 1, NOW + 60 * SECOND)


def test_a_longer_retry_after_counts_while_it_cools() -> None:
    rules = PoolRules(limits=Limits(concurrency=2), cooldown=60 * SECOND)
    member = held(rules, 2)
    for wait in (30, 90):
        told = Report(outcome=ResourceOutcome.RATE_LIMITED, retry_after=wait * SECOND)
        member = released(member, rules, told, NOW)
    assert (member.record.cooldowns, member.record.cooldown_until) == (1, NOW + 90 * SECOND)


def held(rules: PoolRules, times: int) -> Resource:
    member = Resource(pool="p", name="m")
    for _ in range(times):
        member = granted(member, rules, _no_use, NOW)
    return member


def all_at_once(rules: PoolRules, report: Report) -> Record:
    member = held(rules, 8)
    for _ in range(8):
        member = released(member, rules, report, NOW)
    return member.record
