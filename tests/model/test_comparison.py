"""Members judged by comparison: the evidence, how it fades, and when it is enough."""

from itertools import product
from random import Random

import msgspec
import pytest

from pitboss.model.comparison import KEPT, RATE, Evidence, at_fault, evidence, noted, suspected
from pitboss.model.duration import SECOND
from pitboss.model.member_health import given_back, tried_after
from pitboss.model.outdone import may_send_away, outdone
from pitboss.model.resource import PoolRules, Record, Report, Resource, ResourceOutcome

NOW = 1_000 * SECOND
OK, FAILED = (Report(outcome=outcome) for outcome in (ResourceOutcome.OK, ResourceOutcome.TASK_ERROR))


def after(uses: str) -> int:
    """The number for these uses, oldest first; x failed."""
    compared = 0
    for use in uses:
        compared = noted(compared, failed=use == "x")
    return compared


def test_uses_are_counted_and_the_oldest_forgotten() -> None:
    assert evidence(0) == evidence(after("")) == (0, 0)
    assert evidence(after("x..x.")) == (2, 5)
    assert evidence(after("x" * 40)) == (KEPT, KEPT)
    assert evidence(after("x" * 40 + "." * (KEPT - 1))) == (1, KEPT)
    assert evidence(after("x" * 40 + "." * KEPT)) == (0, KEPT)
    assert after("x" * 99) < 2**63, "every store can keep it"


def test_the_evidence_is_told_in_words() -> None:
    assert str(Evidence(6, 8)) == "failed 6 of 8 tasks that then succeeded with others"


@pytest.mark.parametrize(("failed", "ok"), [(1, 0), (2, 0), (3, 0), (3, 3), (3, 4), (4, 4), (8, 20), (9, 20), (9, 23)])
def test_the_chance_is_that_of_the_beta_distribution(failed: int, ok: int) -> None:
    """Compared with the area under its density, summed over a fine grid."""
    steps = 20_000
    density = [((n + 0.5) / steps) ** failed * (1 - (n + 0.5) / steps) ** (ok + 4) for n in range(steps)]
    above = sum(density[round(RATE * steps) :]) / sum(density)
    assert suspected(after("x" * failed + "." * ok)) == (above > 0.95)


def test_two_failures_are_not_enough_and_three_are() -> None:
    assert [suspected(after("x" * failed)) for failed in (1, 2, 3)] == [False, False, True]


def test_a_member_that_was_always_good_and_breaks_is_found_soon() -> None:
    good = after("." * 100)
    found = next(failed for failed in range(1, 99) if suspected(after("." * 100 + "x" * failed)))
    assert (suspected(good), found) == (False, 8)


def test_what_a_member_did_long_ago_does_not_count() -> None:
    """Without room on the blacklist it goes on, and is repaired one day."""
    uses = "x" * 20
    freed = next(good for good in range(1, 99) if not suspected(after(uses + "." * good)))
    assert freed < KEPT


def test_a_member_must_be_worse_than_what_all_have_in_common() -> None:
    bad, good = after("xx.x.xx."), after("........")
    shared = after("x.x.x.x.")
    assert at_fault(bad, [good] * 19)
    assert at_fault(bad, [bad] * 9 + [good] * 10), "a site blocks half of the members"
    assert not at_fault(bad, [shared] * 19), "an outage that all of them saw"
    assert not at_fault(bad, [bad] * 19)
    assert at_fault(after("x" * 8), [0, 0]), "members without uses say nothing against it"
    assert at_fault(after("x" * 8), []), "no other is enabled any more"


def test_few_innocent_members_of_a_shared_outage_are_sent_away() -> None:
    """Each use fails with one chance in three, and its task then succeeds with another member. Without a look at the
    others nearly all members would be sent away."""
    luck, sent, alone = Random(1), set[tuple[int, int]](), set[tuple[int, int]]()
    for pool in range(20):
        seen = [0] * 20
        for _, n in product(range(25), range(20)):
            seen[n] = noted(seen[n], failed=luck.random() < 1 / 3)
            if suspected(seen[n]):
                alone.add((pool, n))
                if at_fault(seen[n], seen[:n] + seen[n + 1 :]):
                    sent.add((pool, n))
    assert (len(sent) < 0.15 * 400, len(alone) > 0.75 * 400) == (True, True)


def test_a_task_remembers_every_member_that_it_failed_with() -> None:
    tried = {outcome: tried_after(("a",), "b", outcome) for outcome in ResourceOutcome}
    assert tried == {
        ResourceOutcome.OK: ("a",),
        ResourceOutcome.RATE_LIMITED: ("a",),
        ResourceOutcome.BLOCKED: ("a", "b"),
        ResourceOutcome.RESOURCE_ERROR: ("a", "b"),
        ResourceOutcome.TASK_ERROR: ("a", "b"),
    }


def test_only_a_completed_task_with_a_good_report_compares() -> None:
    member = Resource(pool="p", name="c", in_use=1)
    told = {
        (completed, report): given_back(member, PoolRules(), report, NOW, tried=("a", "c", "b"), completed=completed)
        for completed in (True, False)
        for report in (OK, FAILED)
    }
    assert {key: back.outdone for key, back in told.items()} == {
        (True, OK): ("a", "b"),
        (True, FAILED): (),
        (False, OK): (),
        (False, FAILED): (),
    }
    assert [evidence(back.member.record.compared) for back in told.values()] == [(0, 1), (0, 0), (0, 0), (0, 0)]


def test_a_member_without_failures_is_not_judged() -> None:
    """The others are read only if one more failure may send it away."""
    record = Record(compared=after("." * 20))
    member = Resource(pool="p", name="a", record=record)
    assert not may_send_away(member, NOW)
    assert may_send_away(msgspec.structs.replace(member, record=Record(blacklistings=1)), NOW)
    assert not may_send_away(
        msgspec.structs.replace(member, record=Record(blacklistings=1, blacklisted_until=NOW + 1)), NOW
    )


def test_the_time_on_the_blacklist_doubles_and_a_good_probe_ends_it() -> None:
    rules, now = PoolRules(), NOW
    member = Resource(pool="p", name="a", record=Record(compared=after("xx")))
    first = outdone(member, rules, now)
    assert first.away is not None
    assert first.away.until == now + rules.blacklist == first.member.available_at
    assert (first.away.resource, first.away.why) == ("p/a", str(Evidence(3, 3)))
    now = first.away.until
    second = outdone(first.member, rules, now)
    assert second.away is not None
    assert second.away.until == now + 2 * rules.blacklist
    held = msgspec.structs.replace(second.member, in_use=1)
    early = given_back(held, rules, OK, now, completed=True).member.record
    assert evidence(early.compared) == (4, 5), "it was held before it went on the blacklist: that is no probe"
    probed = given_back(held, rules, OK, second.away.until, completed=True).member.record
    assert (probed.blacklistings, evidence(probed.compared)) == (0, (0, 1))
