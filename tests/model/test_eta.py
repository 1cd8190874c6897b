"""When batches start and end: ranges that hold in a simulated run, and say nothing while nothing is known."""

import heapq
from bisect import bisect_right
from random import Random

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pitboss.model.batch import RECENT, Batch, BatchStatus, Lane
from pitboss.model.duration import SECOND
from pitboss.model.eta import Pace, Range, ends, forecast, pace, spoken_range
from pitboss.model.limits import Window
from pitboss.model.resource import Limits
from pitboss.model.states import State
from pitboss.model.supply import Supply

NOW = 1_800_000_000_000_000
MINUTE, HOUR = 60 * SECOND, 3600 * SECOND
counts = st.integers(1, 100_000)
paces = st.builds(lambda rate, spread: Pace(rate / spread, rate * spread), st.floats(0.001, 1000), st.floats(1, 3))
supplies = st.builds(
    lambda count, per, members, wait: Supply(((Limits(windows=(Window(count, per),)), members),), wait),
    st.integers(1, 100),
    st.integers(SECOND, HOUR),
    st.integers(1, 50),
    st.integers(0, HOUR),
)


def running(left: int = 100, recent: int = 60, since: int = MINUTE, **values: object) -> Batch:
    defaults = {
        "id": "r",
        "status": BatchStatus.RUNNING,
        "position": 0,
        "started_at": NOW - since,
        "counts": {State.HELD: left, State.COMPLETED: recent},
        "recent": recent,
        "queues": ("q",),
    }
    return Batch(**defaults | values)  # type: ignore[arg-type]


def queued(name: str, position: int, left: int = 60, **values: object) -> Batch:
    defaults = {"id": name, "position": position, "counts": {State.HELD: left}, "queues": ("q",)}
    return Batch(**defaults | values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("recent", "since", "known"),
    [
        (19, 59 * SECOND, False),
        (20, 2 * SECOND, True),
        (1, MINUTE, True),
        (0, HOUR, False),
        (20, 0, False),
    ],
)
def test_a_pace_is_unknown_until_20_items_or_a_minute(recent: int, since: int, known: bool) -> None:
    assert (pace(running(recent=recent, since=since), NOW) is not None) is known


def test_a_pace_is_over_the_recent_time_or_since_the_start() -> None:
    for since, rate in ((MINUTE, 60 / 60), (10 * RECENT, 60 / 300)):
        found = pace(running(recent=60, since=since), NOW)
        assert found is not None
        assert found.slow < rate < found.fast
    assert pace(Batch(id="b"), NOW) is None


@given(counts, paces, st.one_of(st.none(), supplies), st.sampled_from([1.0, 0.5]))
def test_a_range_is_in_order_and_knows_its_limits(left: int, speed: Pace, supply: Supply | None, share: float) -> None:
    found = ends(left, speed, supply, share)
    assert found is not None
    assert found.latest is not None
    assert 0 <= found.earliest <= found.latest
    if supply is not None:
        assert supply.most(found.earliest) + 1e-6 >= left
        assert found.latest >= supply.wait


@given(counts, counts, paces, supplies)
def test_more_work_never_ends_sooner(a: int, b: int, speed: Pace, supply: Supply) -> None:
    less, more = sorted((a, b))
    first, second = ends(less, speed, supply), ends(more, speed, supply)
    assert first is not None
    assert second is not None
    assert first.earliest <= second.earliest
    assert (first.latest or 0) <= (second.latest or 0)


def test_the_budget_bounds_what_a_burst_promises() -> None:
    """50 proxies, 50 uses an hour: they go fast at first, and then as fast as the hours pass."""
    supply = Supply(((Limits(windows=(Window(50, HOUR),)), 50),))
    found = ends(10_000, Pace(20, 25), supply)
    assert found == Range(3 * HOUR, 4 * HOUR)
    exhausted = msgspec.structs.replace(supply, wait=HOUR // 2)
    assert ends(2500, Pace(0.01, 0.02), exhausted) == Range(HOUR // 2, HOUR + HOUR // 2)
    assert ends(10_000, None, supply) == Range(3 * HOUR, None)
    assert ends(10_000, None, Supply(())) is None
    assert ends(10_000, None, None) is None
    assert ends(0, None, None) == Range(0, 0)


@given(
    members=st.integers(1, 20),
    count=st.integers(1, 30),
    per=st.integers(10, 3600).map(lambda seconds: seconds * SECOND),
    items=st.integers(50, 2000),
    service=st.integers(0, 2000).map(lambda millis: millis * 1000),
    moment=st.floats(0.01, 0.99),
)
def test_work_whose_resources_are_used_up_ends_within_its_range(
    members: int, count: int, per: int, items: int, service: int, moment: float
) -> None:
    """A greedy user of the pool is the truth; whenever all members are away, the end lies between."""
    limits = Limits(windows=(Window(count, per),))
    starts = _greedy(members, count, per, items, service)
    finishes = [start + service for start in starts]
    now = round(finishes[-1] * moment)
    done = bisect_right(finishes, now)
    recent = done - bisect_right(finishes, now - RECENT)
    begun = bisect_right(starts, now)
    assume(done == begun < items)
    supply = Supply(((limits, members),), starts[begun] - now)
    batch = running(items - done, recent, now, id="b")
    assume(recent >= 20 or now >= MINUTE)
    found = forecast([batch], [], {"b": supply}, NOW)["b"].ends
    assert found is not None
    assert found.latest is not None
    truth = finishes[-1] - now
    assert found.earliest <= truth
    # The last window need not be used to its end, and uses take their time.
    assert truth <= found.latest + per + count * service


def _greedy(members: int, count: int, per: int, items: int, service: int) -> list[int]:
    """When each item starts if no use is ever missed and each member serves one at a time."""
    free: list[tuple[int, int]] = [(0, member) for member in range(members)]
    used: list[list[int]] = [[] for _ in range(members)]
    starts = []
    for _ in range(items):
        now, member = heapq.heappop(free)
        starts.append(now)
        used[member].append(now)
        opens = used[member][-count] + per if len(used[member]) >= count else 0
        heapq.heappush(free, (max(now + service, opens), member))
    return sorted(starts)


def test_random_work_ends_within_its_range_nine_times_of_ten() -> None:
    dice = Random(5)
    within = 0
    for _ in range(300):
        rate = 10 ** dice.uniform(-1, 1)
        seen, at = 0, dice.expovariate(rate)
        while at <= 300:
            seen, at = seen + 1, at + dice.expovariate(rate)
        left = 2000
        took = sum(dice.expovariate(rate) for _ in range(left)) * SECOND
        found = ends(left, pace(running(left, seen, RECENT), NOW), None)
        assert found is not None
        assert found.latest is not None
        within += found.earliest <= took <= found.latest
    assert within >= 255


def told(*batches: Batch, room: int = 1, supply: Supply | None = None) -> dict[str, tuple[str, str]]:
    known = {} if supply is None else {batch.id: supply for batch in batches}
    found = forecast(batches, [Lane(name="default", max_running=room)], known, NOW)
    return {name: (spoken_range(one.starts), spoken_range(one.ends)) for name, one in found.items()}


def test_queued_batches_start_when_those_before_them_have_ended() -> None:
    found = forecast(
        [running(left=600, recent=300, since=RECENT), queued("b", 2, 600), queued("a", 1, 1200)],
        [Lane(name="default")],
        {},
        NOW,
    )
    assert found["r"].starts is None
    assert found["a"].starts == found["r"].ends
    assert found["b"].starts == found["a"].ends
    assert found["b"].ends is not None
    assert found["b"].ends.earliest == pytest.approx(2400 / 1.0947 * SECOND, rel=0.01)


def test_a_free_slot_starts_the_next_at_once_and_an_overfull_lane_later() -> None:
    first, second = running(left=600, id="x"), running(left=6000, id="y")
    assert told(first, queued("a", 1), room=2)["a"][0] == "less than a minute"
    alone = forecast([first, queued("a", 1)], [Lane(name="default")], {}, NOW)
    crowded = forecast([first, second, queued("a", 1)], [Lane(name="default")], {}, NOW)
    assert alone["a"].starts == alone["x"].ends
    assert crowded["a"].starts == crowded["y"].ends


def test_what_is_unknown_stays_unknown_for_those_behind() -> None:
    young = running(recent=3, since=SECOND)
    assert told(young, queued("a", 1), queued("b", 2)) == {
        "r": ("unknown", "unknown"),
        "a": ("unknown", "unknown"),
        "b": ("unknown", "unknown"),
    }
    supply = Supply(((Limits(windows=(Window(10, HOUR),)), 1),))
    assert told(young, queued("a", 1, 30), queued("b", 2), supply=supply) == {
        "r": ("unknown", "unknown"),
        "a": ("unknown", "at least 2 h"),
        "b": ("at least 2 h", "at least 7 h"),
    }


def test_one_that_does_not_go_on_has_no_end_and_those_behind_it_no_start() -> None:
    batches = [running(left=600, recent=300, since=RECENT), queued("a", 1)]
    assert all(spoken_range(one.ends).startswith("about") for one in forecast(batches, [], {}, NOW).values())
    found = forecast(batches, [], {}, NOW, stuck={"r"})
    assert [spoken_range(found[name].ends) for name in ("r", "a")] == ["unknown", "unknown"]
    assert found["a"].starts is None


def test_one_that_is_being_stopped_makes_room_soon() -> None:
    for status in (BatchStatus.PAUSING, BatchStatus.CANCELLING):
        found = forecast([running(status=status), queued("a", 1)], [], {}, NOW)
        assert found["r"].ends is None
        assert found["a"].starts == Range(0, 0)


def test_lanes_do_not_wait_for_each_other() -> None:
    found = forecast([running(left=10**6), queued("a", 1, lane="other")], [], {}, NOW)
    assert found["a"].starts == Range(0, 0)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "unknown"),
        (Range(0, 59 * SECOND), "less than a minute"),
        (Range(12 * MINUTE, 18 * MINUTE), "about 12-18 min"),
        (Range(12 * MINUTE + 1, 17 * MINUTE + 1), "about 12-18 min"),
        (Range(12 * MINUTE, 12 * MINUTE), "about 12 min"),
        (Range(10 * SECOND, 5 * MINUTE), "up to 5 min"),
        (Range(HOUR, 99 * MINUTE), "about 60-99 min"),
        (Range(3 * HOUR, 4 * HOUR + MINUTE), "about 3-4.1 h"),
        (Range(20 * HOUR, 30 * HOUR + MINUTE), "about 20-31 h"),
        (Range(48 * HOUR, 90 * HOUR), "about 2-3.8 days"),
        (Range(2 * HOUR, None), "at least 2 h"),
        (Range(SECOND, None), "unknown"),
    ],
)
def test_ranges_are_said_as_people_say_them(found: Range | None, said: str) -> None:
    assert spoken_range(found) == said
