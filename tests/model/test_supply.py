"""What a pool can give at best and for long, and how it says that it gives nothing."""

from functools import partial
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.duration import SECOND
from pitboss.model.leasing import granted, placed
from pitboss.model.limits import Window
from pitboss.model.member_health import released
from pitboss.model.resource import Limits, PoolRules, Record, Report, Resource, ResourceOutcome
from pitboss.model.supply import ResourcePoolView, Supply, most, shortest, soonest, steady, together

NOW = 1_800_000_000_000_000
MINUTE = 60 * SECOND
spans = st.integers(1, 100 * SECOND)
limits = st.builds(
    Limits,
    windows=st.lists(st.builds(Window, st.integers(1, 20), spans), max_size=3).map(tuple),
    min_delay=st.one_of(st.just(0), spans),
    jitter=st.one_of(st.just(0), spans),
    delay_from=st.sampled_from(["start", "end"]),
    concurrency=st.one_of(st.none(), st.integers(1, 3)),
    guard=st.one_of(st.just(0), st.integers(0, SECOND)),
)
supplies = st.builds(Supply, st.lists(st.tuples(limits, st.integers(1, 5)), max_size=3).map(tuple))


def nth(moments: list[int], number: int) -> int | None:
    return moments[-number] if number <= len(moments) else None


def member(name: str = "p1", **values: object) -> Resource:
    rules = PoolRules()
    return placed(Resource(**{"pool": "proxies", "name": name} | values), rules, NOW)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given_limits", "rate"),
    [
        (Limits(), inf),
        (Limits(windows=(Window(50, 3600 * SECOND),)), 50 / 3600),
        (Limits(windows=(Window(50, 3600 * SECOND), Window(6, MINUTE))), 50 / 3600),
        (Limits(min_delay=2 * SECOND, jitter=SECOND), 1 / 2.5),
        (Limits(min_delay=2 * SECOND, jitter=SECOND, delay_from="end", concurrency=2), 2 / 2.5),
        (Limits(min_delay=2 * SECOND, delay_from="end", concurrency=None), inf),
        (Limits(windows=(Window(1, SECOND),), guard=SECOND), 1 / 2),
    ],
)
def test_the_steady_rate_is_the_tightest_of_all_limits(given_limits: Limits, rate: float) -> None:
    assert steady(given_limits) == pytest.approx(rate)


@given(limits, st.integers(0, 1000 * SECOND), st.integers(0, 1000 * SECOND))
def test_longer_times_allow_no_less_and_never_less_than_the_steady_rate(one: Limits, a: int, b: int) -> None:
    short, long = sorted((a, b))
    assert 1 <= most(one, short) <= most(one, long)
    assert most(one, long) + 1e-6 >= steady(one) * (long + 1) / SECOND - 1


@given(supplies, st.integers(0, 500))
def test_the_soonest_time_is_the_first_at_which_so_many_uses_fit(supply: Supply, uses: int) -> None:
    found = soonest(supply, uses)
    if not supply.members and uses:
        assert found is None
    else:
        assert found is not None
        assert found == 0 or supply.most(found - 1) < uses
        assert supply.most(found) >= uses or uses == 0


@given(limits, st.integers(1, 40), st.lists(st.integers(0, 5 * SECOND), min_size=40, max_size=40))
def test_no_member_can_be_used_faster_than_the_soonest_time_says(one: Limits, uses: int, ran: list[int]) -> None:
    """A greedy user with no waste at all, by the rules of leasing, is the witness."""
    rules = PoolRules(limits=one)
    resource = placed(Resource(pool="p", name="m"), rules, NOW)
    starts: list[int] = []
    now = NOW
    for index in range(uses):
        now = max(now, resource.available_at)
        resource = granted(resource, rules, partial(nth, [*starts]), now)
        starts.append(now)
        if one.concurrency is not None:
            now += ran[index]
            resource = released(resource, rules, Report(outcome=ResourceOutcome.OK), now)
    at_best = soonest(Supply(((one, 1),)), uses)
    assert at_best is not None
    assert at_best <= starts[-1] - starts[0]


def test_members_that_are_used_up_give_their_budget_after_their_wait() -> None:
    """The estimate of a plan took all windows for unused: 60 s for what took two minutes."""
    per_minute = Limits(windows=(Window(20, MINUTE),))
    some = Supply(((per_minute, 20),), later=((per_minute, 18, 33 * SECOND),))
    assert (some.most(0), some.most(33 * SECOND), some.most(60 * SECOND)) == (40, 400, 440)
    assert shortest(some, 636, 0, whole=False) == 93 * SECOND
    assert shortest(Supply(((per_minute, 20),)), 636, 0, whole=False) == 60 * SECOND


def test_a_view_knows_the_waits_of_its_members() -> None:
    view = ResourcePoolView("proxies", PoolRules(), [member("p1"), member("p2", available_at=NOW + 5 * SECOND - 1)])
    limits = PoolRules().limits
    assert view.supply(NOW, waits=True).later == ((limits, 1, 5 * SECOND),)
    assert view.supply(NOW).later == ()


def test_pools_together_give_what_they_give_one_by_one() -> None:
    a, b = Limits(windows=(Window(1, SECOND),)), Limits(windows=(Window(3, SECOND),))
    both = together([Supply(((a, 2),), wait=5), Supply(((b, 1),), wait=3)])
    assert both.steady == pytest.approx(5)
    assert both.wait == 3
    assert both.most(0) == 5


def cooling(name: str, seconds: int) -> Resource:
    until = NOW + seconds * SECOND
    return member(name, available_at=until, record=Record(cooldown_until=until))


def test_a_pool_says_what_it_waits_for() -> None:
    rules = PoolRules()
    five = [cooling(f"p{number}", 252 + number) for number in range(5)]
    assert ResourcePoolView("proxies", rules, five).shortage(NOW) == "5 proxies cooling, next in 4m12s"
    mixed = [
        *five[:3],
        member("busy", in_use=1),
        member("out", enabled=False),
        member("rest", available_at=NOW + 2 * SECOND),
    ]
    told = "proxies: 1 busy, 1 resting, 3 cooling, 1 disabled, next in 2s"
    assert ResourcePoolView("proxies", rules, mixed).shortage(NOW) == told
    assert ResourcePoolView("proxies", rules, [member("out", enabled=False)]).shortage(NOW) == "proxies: 1 disabled"
    assert ResourcePoolView("proxies", rules).shortage(NOW) == "proxies has no members"
    assert ResourcePoolView("proxies", rules, [*five, member("free")]).shortage(NOW) is None


def test_only_enabled_members_supply_and_the_first_that_is_back_ends_the_wait() -> None:
    rules = PoolRules(limits=Limits(windows=(Window(2, SECOND),)))
    away = [cooling("a", 10), cooling("b", 5), member("out", enabled=False)]
    supply = ResourcePoolView("proxies", rules, away).supply(NOW)
    assert (supply.members, supply.steady, supply.wait) == (2, 4.0, 5 * SECOND)
    assert ResourcePoolView("proxies", rules, [*away, member("free")]).supply(NOW).wait == 0
    assert ResourcePoolView("proxies", rules, [*away, member("busy", in_use=1)]).supply(NOW).wait == 0
