"""A member's limits, checked against the uses that it was given."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.duration import SECOND, Moment
from pitboss.model.leasing import avoided, condition, fits, granted, placed, restated, shortage, used
from pitboss.model.limits import Window
from pitboss.model.member_health import (
    NOT_THE_MEMBERS,
    forgiven,
    given_back,
    judge,
    may_eject,
    released,
    room_on_blacklist,
    tried_after,
    without_faults,
)
from pitboss.model.picking import nth_of
from pitboss.model.resource import (
    Condition,
    Limits,
    PoolRules,
    Record,
    Report,
    Resource,
    ResourceOutcome,
    Stage,
    Strategy,
    Want,
)

NOW: Moment = 1_000_000 * SECOND
OK = Report(outcome=ResourceOutcome.OK)
ERROR = Report(outcome=ResourceOutcome.RESOURCE_ERROR)
BLOCKED = Report(outcome=ResourceOutcome.BLOCKED)
LIMITED = Report(outcome=ResourceOutcome.RATE_LIMITED)
TASK_ERROR = Report(outcome=ResourceOutcome.TASK_ERROR)
MINUTE = 60 * SECOND

windows = st.lists(st.builds(Window, st.integers(1, 5), st.integers(1, 40)), max_size=3).map(tuple)
limits = st.builds(
    Limits,
    windows=windows,
    min_delay=st.integers(0, 8),
    jitter=st.integers(0, 8),
    delay_from=st.sampled_from(["start", "end"]),
    concurrency=st.one_of(st.none(), st.integers(1, 3)),
    guard=st.integers(0, 3),
    use_within=st.just(0),
)
reports = st.builds(
    Report,
    outcome=st.sampled_from(list(ResourceOutcome)),
    retry_after=st.one_of(st.none(), st.integers(0, 50)),
)
all_rules = st.builds(
    PoolRules,
    limits=limits,
    strategy=st.sampled_from(list(Strategy)),
    max_failures=st.integers(1, 3),
    cooldown=st.integers(0, 20),
    cooldown_cap=st.integers(20, 60),
    blacklist=st.integers(0, 20),
    blacklist_cap=st.integers(20, 60),
)


class Life:
    """One member that is used as often as its limits allow; records when uses began and ended."""

    def __init__(self, rules: PoolRules, now: Moment = 1_000) -> None:
        self.rules, self.now = rules, now
        self.member = placed(Resource(pool="p", name="m"), rules, now)
        self.starts: list[Moment] = []
        self.ends: list[Moment] = []

    @property
    def ends_from(self) -> Moment:
        return min(self.ends, default=self.now)

    def wait(self, span: int) -> None:
        self.now += span
        self.member = placed(self.member, self.rules, self.now)

    def wait_until_ready(self) -> None:
        self.wait(max(0, self.member.available_at - self.now))

    def use(self) -> bool:
        if self.member.stage is not Stage.READY:
            return False
        self.member = granted(self.member, self.rules, nth_of(self.starts), self.now)
        self.starts.append(self.now)
        return True

    def end(self, report: Report | None = None, *, ejectable: bool = True) -> None:
        if self.member.in_use:
            self.member = released(self.member, self.rules, report, self.now, ejectable=ejectable)
            self.ends.append(self.now)

    def turn(self, report: Report | None = None, *, ejectable: bool = True) -> None:
        assert self.use()
        self.end(report, ejectable=ejectable)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(0, 12)),
        st.tuples(st.just("use"), st.none()),
        st.tuples(st.just("end"), st.one_of(st.none(), reports)),
    ),
    max_size=60,
)


def lived(rules: PoolRules, acts: list[tuple[str, object]]) -> Life:
    life = Life(rules)
    for act, argument in acts:
        if act == "wait":
            life.wait(int(str(argument)))
        elif act == "use":
            life.use()
        else:
            life.end(argument if isinstance(argument, Report) else None)
    return life


@given(all_rules, steps)
def test_no_window_is_ever_passed(rules: PoolRules, acts: list[tuple[str, object]]) -> None:
    starts = lived(rules, acts).starts
    for window in rules.limits.windows:
        for first, later in zip(starts, starts[window.count :], strict=False):
            assert later - first >= window.per + rules.limits.guard


@given(all_rules, steps)
def test_gaps_have_their_length(rules: PoolRules, acts: list[tuple[str, object]]) -> None:
    life, rule = lived(rules, acts), rules.limits
    if rule.delay_from == "start":
        least = rule.min_delay + rule.guard if rule.min_delay else 0
        assert all(later - earlier >= least for earlier, later in pairwise(life.starts))
    else:
        rests = (
            later - max(one for one in life.ends if one < later) for later in life.starts if later > life.ends_from
        )
        assert all(rest >= rule.min_delay for rest in rests)


@given(all_rules, steps)
def test_never_more_at_once_than_allowed(rules: PoolRules, acts: list[tuple[str, object]]) -> None:
    life = Life(rules)
    for act, argument in acts:
        if act == "wait":
            life.wait(int(str(argument)))
        elif act == "end":
            life.end(argument if isinstance(argument, Report) else None)
        else:
            on_probation = life.member.record.blacklistings > 0
            if life.use() and (on_probation or rules.limits.concurrency is not None):
                assert life.member.in_use <= (1 if on_probation else rules.limits.concurrency or 0)


@given(all_rules, steps)
def test_no_state_is_for_ever(rules: PoolRules, acts: list[tuple[str, object]]) -> None:
    """After any history, a member that is given back can be used again, within its limits and caps."""
    life = lived(rules, acts)
    while life.member.in_use:
        life.end(None)
    longest = max(
        [rules.cooldown_cap, rules.blacklist_cap, rules.limits.min_delay + rules.limits.jitter]
        + [window.per for window in rules.limits.windows]
    )
    assert life.member.available_at <= life.now + longest + rules.limits.guard
    life.wait_until_ready()
    assert life.use()


@given(all_rules, steps)
def test_it_waits_no_longer_than_its_limits_say(rules: PoolRules, acts: list[tuple[str, object]]) -> None:
    """Without faults, the next use is allowed at exactly the earliest moment: window, or gap with its jitter."""
    life = lived(rules, [(act, None if act == "end" else argument) for act, argument in acts])
    rule = rules.limits
    reasons = [
        life.starts[-window.count] + window.per + rule.guard
        for window in rule.windows
        if len(life.starts) >= window.count
    ]
    since = (life.starts if rule.delay_from == "start" else life.ends)[-1:]
    extra = rule.guard if rule.delay_from == "start" else 0
    least = max([life.now, *reasons, *(one + rule.min_delay for one in since)])
    most = max([life.now, *reasons, *(one + rule.min_delay + rule.jitter + extra for one in since)])
    assert least <= max(life.now, life.member.available_at) <= most


@given(all_rules, steps)
def test_changing_nothing_of_the_rules_changes_nothing(rules: PoolRules, acts: list[tuple[str, object]]) -> None:
    life = lived(rules, acts)
    again = restated(life.member, rules, nth_of(life.starts), life.now)
    before, after = max(life.member.available_at, life.now), max(again.available_at, life.now)
    # Of several ends only the last is remembered, and an earlier one may have had a larger jitter.
    slack = rules.limits.jitter if rules.limits.delay_from == "end" else 0
    assert before - slack <= after <= before
    assert again.rank == life.member.rank
    assert slack or again.stage is life.member.stage


@given(all_rules, steps, reports)
def test_a_report_never_brings_it_back_sooner(rules: PoolRules, acts: list[tuple[str, object]], report: Report) -> None:
    life = lived(rules, acts)
    before = life.member
    after = released(before, rules, report, life.now)
    assert after.available_at >= before.available_at
    assert after.record.cooldown_until >= before.record.cooldown_until
    assert after.record.blacklisted_until >= min(before.record.blacklisted_until, life.now)


def test_the_hour_is_exact_wherever_it_begins() -> None:
    rules = PoolRules(limits=Limits(windows=(Window(3, 60 * MINUTE),), use_within=0))
    life = Life(rules, NOW)
    for pause in (0, 10 * MINUTE, 20 * MINUTE):
        life.wait(pause)
        life.turn(OK)
    assert life.member.available_at == NOW + 60 * MINUTE
    life.wait(30 * MINUTE - 1)
    assert not life.use()
    life.wait(1)
    assert life.use()
    assert life.member.available_at == NOW + 70 * MINUTE


def test_several_windows_hold_together() -> None:
    rules = PoolRules(limits=Limits(windows=(Window(2, 10), Window(3, 100)), concurrency=None, use_within=0))
    life = Life(rules)
    for expected in (0, 10, 100):
        assert life.use()
        assert max(life.member.available_at, 1_000) == 1_000 + expected
        life.wait_until_ready()


def test_the_guard_makes_windows_and_gaps_from_the_start_longer_but_not_gaps_from_the_end() -> None:
    window = Life(PoolRules(limits=Limits(windows=(Window(1, 10),), guard=2)))
    window.turn()
    assert window.member.available_at == 1_012
    start = Life(PoolRules(limits=Limits(min_delay=10, guard=2)))
    start.turn()
    assert start.member.available_at == 1_012
    end = Life(PoolRules(limits=Limits(min_delay=10, guard=2, delay_from="end")))
    end.turn()
    assert end.member.available_at == 1_010


def test_jitter_differs_from_use_to_use_and_is_the_same_everywhere() -> None:
    rules = PoolRules(limits=Limits(min_delay=1_000, jitter=1_000, use_within=0))

    def gaps() -> list[int]:
        life = Life(rules)
        found = []
        for _ in range(20):
            life.turn()
            found.append(life.member.available_at - life.now)
            life.wait_until_ready()
        return found

    assert gaps() == gaps()
    assert len(set(gaps())) > 15
    assert all(1_000 <= gap <= 2_000 for gap in gaps())


def test_further_uses_count_and_hold_no_second_place() -> None:
    rules = PoolRules(limits=Limits(windows=(Window(2, 100),), concurrency=2, use_within=0))
    life = Life(rules)
    assert life.use()
    life.member = used(life.member, rules, nth_of(life.starts), life.now)
    assert (life.member.in_use, life.member.record.uses, life.member.available_at) == (1, 2, 1_100)


def test_a_refusal_cools_for_as_long_as_it_says_and_never_shortens_an_earlier_one() -> None:
    rules = PoolRules(cooldown=10 * MINUTE, cooldown_cap=60 * MINUTE, limits=Limits(concurrency=None))
    life = Life(rules, NOW)
    assert life.use()
    assert life.use()
    life.end(msgspec.structs.replace(LIMITED, retry_after=30 * MINUTE))
    life.end(msgspec.structs.replace(LIMITED, retry_after=SECOND))
    assert life.member.record.cooldown_until == NOW + 30 * MINUTE
    assert life.member.available_at == NOW + 30 * MINUTE
    assert condition(life.member, rules, NOW) == (Condition.COOLING, NOW + 30 * MINUTE)


def test_a_cooldown_doubles_up_to_its_cap_and_begins_anew_after_a_success() -> None:
    rules = PoolRules(cooldown=10 * MINUTE, cooldown_cap=35 * MINUTE)
    life = Life(rules, NOW)
    pauses = []
    for report in (LIMITED, LIMITED, LIMITED, OK, LIMITED):
        life.turn(report)
        pauses.append(life.member.available_at - life.now)
        life.wait_until_ready()
    assert pauses == [10 * MINUTE, 20 * MINUTE, 35 * MINUTE, 0, 10 * MINUTE]


def test_a_retry_after_beyond_the_cap_is_cut() -> None:
    life = Life(PoolRules(cooldown_cap=60 * MINUTE), NOW)
    life.turn(msgspec.structs.replace(LIMITED, retry_after=10**15))
    assert life.member.available_at == NOW + 60 * MINUTE


def test_failures_in_a_row_eject_for_a_doubling_time_and_then_one_probe_decides() -> None:
    rules = PoolRules(
        max_failures=3, blacklist=30 * MINUTE, blacklist_cap=100 * MINUTE, limits=Limits(concurrency=None)
    )
    life = Life(rules, NOW)
    for report in (ERROR, ERROR, OK, ERROR, ERROR):
        life.turn(report)
        assert life.member.stage is Stage.READY
    pauses = []
    for _ in range(3):
        life.turn(ERROR)
        assert condition(life.member, rules, life.now)[0] is Condition.BLACKLISTED
        pauses.append(life.member.available_at - life.now)
        life.wait_until_ready()
    assert pauses == [30 * MINUTE, 60 * MINUTE, 100 * MINUTE]
    assert life.use()
    probed: Stage = life.member.stage
    assert probed is Stage.BUSY, "one use at a time while it is on probation"
    life.end(OK)
    assert life.member.record.blacklistings == 0
    assert life.use()
    assert life.member.stage is Stage.READY, "as many as the limits allow again"


def test_a_probe_of_which_nothing_is_known_is_followed_by_another_one() -> None:
    rules = PoolRules(max_failures=1)
    life = Life(rules, NOW)
    life.turn(ERROR)
    life.wait_until_ready()
    for report in (None, TASK_ERROR):
        life.turn(report)
        assert life.member.stage is Stage.READY
        assert life.member.record.blacklistings == 1


def test_without_room_on_the_blacklist_it_cools_instead_and_is_asked_again() -> None:
    rules = PoolRules(max_failures=1, cooldown=10 * MINUTE)
    life = Life(rules, NOW)
    life.turn(ERROR, ejectable=False)
    assert life.member.record.blacklistings == 0
    assert life.member.available_at == NOW + 10 * MINUTE
    life.wait_until_ready()
    life.turn(ERROR, ejectable=False)
    assert life.member.available_at == life.now + 20 * MINUTE


@given(st.floats(0, 1), st.integers(0, 30))
def test_the_blacklist_never_takes_more_than_its_share_and_never_the_last(share: float, enabled: int) -> None:
    rules = PoolRules(max_ejected=share)
    ejected = 0
    while room_on_blacklist(rules, enabled, ejected):
        ejected += 1
    assert ejected <= share * enabled
    assert ejected < max(1, enabled)


def test_half_of_ten_may_be_ejected_and_none_of_one() -> None:
    rules = PoolRules(max_ejected=0.5)
    assert room_on_blacklist(rules, 10, 4)
    assert not room_on_blacklist(rules, 10, 5)
    assert not room_on_blacklist(PoolRules(max_ejected=1), 1, 0)


def test_only_faults_can_eject() -> None:
    rules = PoolRules(max_failures=1)
    member = Resource(pool="p", name="m")
    assert [may_eject(member, rules, report) for report in (OK, LIMITED, TASK_ERROR, BLOCKED, ERROR)] == [
        False,
        False,
        False,
        True,
        True,
    ]


def test_what_the_task_did_wrong_is_not_the_members() -> None:
    life = Life(PoolRules(max_failures=1), NOW)
    life.turn(TASK_ERROR)
    assert life.member.stage is Stage.READY
    assert life.member.record.failures == 0


def test_an_operators_reset_brings_it_back_but_forgets_no_use() -> None:
    rules = PoolRules(max_failures=1, limits=Limits(windows=(Window(1, MINUTE),), use_within=0))
    life = Life(rules, NOW)
    life.turn(BLOCKED)
    assert life.member.available_at > NOW + MINUTE
    clean = msgspec.structs.replace(life.member, record=without_faults(life.member.record))
    clean = restated(clean, rules, nth_of(life.starts), NOW)
    assert clean.available_at == NOW + MINUTE
    assert clean.record.uses == 1


def test_a_member_that_fails_on_a_task_that_two_others_failed_on_is_excused() -> None:
    assert judge(ERROR, "c", ("a",), ()).report is ERROR
    third = judge(ERROR, "c", ("a", "b"), ())
    assert third.report.outcome is ResourceOutcome.TASK_ERROR
    assert third.forgiven == ("a", "b")
    fourth = judge(BLOCKED, "d", ("a", "b", "c"), ())
    assert fourth.report.outcome is ResourceOutcome.TASK_ERROR
    assert fourth.forgiven == (), "they were forgiven when the third one failed"


def test_the_same_holds_for_a_destination_and_a_members_own_failures_do_not_excuse_it() -> None:
    assert judge(ERROR, "c", (), ("a", "b")).forgiven == ("a", "b")
    assert judge(ERROR, "a", (), ("a",)).report is ERROR
    assert judge(ERROR, "b", (), ("a",)).report is ERROR
    assert judge(ERROR, "a", ("a", "b"), ()).report is ERROR


def test_a_destination_that_another_member_failed_on_too_counts_once_for_each() -> None:
    excused = msgspec.structs.replace(ERROR, outcome=ResourceOutcome.TASK_ERROR)
    assert judge(ERROR, "a", (), ("a", "b")) == (excused, (), False)


@given(st.lists(st.sampled_from("abcde"), unique=True), st.lists(st.sampled_from("abcde"), unique=True))
def test_only_faults_are_judged(tried: list[str], strikers: list[str]) -> None:
    for report in (OK, LIMITED, TASK_ERROR):
        assert judge(report, "m", tried, strikers) == (report, (), False)


@given(st.permutations("abcdef"))
def test_a_bad_task_costs_no_member_its_record(order: list[str]) -> None:
    """However many members the task runs on, each keeps the failures that it had before."""
    rules = PoolRules(max_failures=3)
    members = {name: Resource(pool="p", name=name, record=Record(failures=1)) for name in order}
    tried: tuple[str, ...] = ()
    for name in order:
        back = given_back(members[name], rules, ERROR, NOW, tried=tried)
        members[name] = back.member
        for other in back.forgiven:
            members[other] = forgiven(members[other], struck=back.struck)
        tried = tried_after(tried, name, ERROR.outcome)
    assert len(order) > NOT_THE_MEMBERS
    assert {member.record.failures for member in members.values()} == {1}


def test_a_fault_strikes_its_destination_and_a_success_clears_it() -> None:
    member, somewhere = Resource(pool="p", name="m"), {"destination": "example.org"}
    strikes = {
        report.outcome: given_back(member, PoolRules(), msgspec.structs.replace(report, **somewhere), NOW).strike
        for report in (OK, ERROR, BLOCKED, LIMITED, TASK_ERROR)
    }
    assert strikes == {
        ResourceOutcome.OK: False,
        ResourceOutcome.RESOURCE_ERROR: True,
        ResourceOutcome.BLOCKED: True,
        ResourceOutcome.RATE_LIMITED: None,
        ResourceOutcome.TASK_ERROR: None,
    }
    assert given_back(member, PoolRules(), ERROR, NOW).strike is None, "there is no destination"


def test_a_fault_that_is_excused_strikes_too_and_a_silent_return_judges_nothing() -> None:
    rules, member = PoolRules(max_failures=1), Resource(pool="p", name="c", in_use=1)
    somewhere = msgspec.structs.replace(ERROR, destination="example.org")
    back = given_back(member, rules, somewhere, NOW, strikers=("a", "b"))
    assert (back.forgiven, back.strike, back.member.record.blacklistings) == (("a", "b"), True, 0)
    assert given_back(member, rules, None, NOW) == (released(member, rules, None, NOW), (), None, (), False)


def test_a_member_that_the_blacklist_has_no_room_for_cools_down_instead() -> None:
    rules, member = PoolRules(max_failures=1), Resource(pool="p", name="m", in_use=1)
    assert given_back(member, rules, ERROR, NOW).member.record.blacklisted_until == NOW + rules.blacklist
    kept = given_back(member, rules, ERROR, NOW, room=False).member.record
    assert (kept.blacklisted_until, kept.cooldown_until) == (0, NOW + rules.cooldown)


def test_a_task_remembers_who_failed_it_newest_last_and_not_without_end() -> None:
    assert tried_after(("a", "b"), "a", ResourceOutcome.BLOCKED) == ("b", "a")
    assert tried_after(("a",), "b", ResourceOutcome.OK) == ("a",)
    many: tuple[str, ...] = ()
    for number in range(100):
        many = tried_after(many, f"m{number}", ResourceOutcome.TASK_ERROR)
    assert len(many) == 16
    assert many[-1] == "m99"


@given(st.lists(st.sampled_from("abcde"), unique=True), st.integers(0, 5))
def test_one_member_is_always_left(tried: list[str], members: int) -> None:
    shunned = avoided(tried, members)
    assert shunned <= set(tried)
    assert len(shunned) <= max(0, members - 1)
    if members > len(tried):
        assert shunned == set(tried)


def test_labels_must_all_be_there() -> None:
    member = Resource(pool="p", name="m", labels=("eu", "fast"))
    assert fits(member, Want())
    assert fits(member, Want(labels=("eu",)))
    assert not fits(member, Want(labels=("eu", "us")))
    assert not fits(member, Want(), avoided=("m",))


def test_turns_go_by_weight() -> None:
    rules = PoolRules(strategy=Strategy.WEIGHTED)
    heavy, light = (placed(Resource(pool="p", name=f"w{weight}", weight=weight), rules, 0) for weight in (300, 100))
    given_to = []
    for _ in range(40):
        chosen = min((heavy, light), key=lambda member: (member.rank, member.last_used_at, member.name))
        given_to.append(chosen.name)
        after = released(granted(chosen, rules, nth_of([]), 0), rules, OK, 0)
        heavy, light = (after, light) if chosen is heavy else (heavy, after)
    assert given_to.count("w300") in (29, 30)


@pytest.mark.parametrize(
    ("stages", "why"),
    [
        ({}, "no members"),
        ({Stage.OUT: 2}, "all disabled"),
        ({Stage.BUSY: 1, Stage.OUT: 1}, "all busy"),
        ({Stage.AWAY: 1, Stage.BUSY: 5}, "all away"),
        ({Stage.READY: 1, Stage.AWAY: 1}, "none fits"),
    ],
)
def test_a_shortage_says_why(stages: dict[Stage, int], why: str) -> None:
    until = NOW if Stage.AWAY in stages else None
    found = shortage("p", stages, until)
    assert (found.why, found.until) == (why, until)


def test_a_disabled_member_is_out_whatever_else_it_is() -> None:
    rules = PoolRules()
    member = placed(Resource(pool="p", name="m", enabled=False, in_use=1), rules, NOW)
    assert member.stage is Stage.OUT
    assert condition(member, rules, NOW) == (Condition.DISABLED, None)
