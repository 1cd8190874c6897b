"""What becomes of a queue never contradicts its own rates."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from pitboss.model.duration import SECOND
from pitboss.model.gates import Gate
from pitboss.model.queue import Queue
from pitboss.model.queue_forecast import QueueFlow, QueueForecast, Trend, forecast_queue
from pitboss.model.states import State
from pitboss.model.tides import Tide

NOW = 1_000_000 * SECOND
STEP = 10 * SECOND
COOLING = Gate(name="resource", what="", says="", passed=False, cause="cooling", until=NOW + 600 * SECOND)


def flow(tides: Sequence[tuple[int, int]], pending: int, **known: object) -> QueueFlow:
    """`tides` are those that came and went in buckets of ten seconds, oldest first, the last one up to now."""
    counts = {State.PENDING: pending, State.RUNNING: 0, **known.pop("counts", {})}  # type: ignore[dict-item]
    first = NOW - len(tides) * STEP
    options: dict[str, object] = {"served_since": first - 3600 * SECOND, "waited": 300 * SECOND, "seats": 32}
    return QueueFlow(
        queue=Queue(name="work", counts=counts),
        now=NOW,
        tides=[Tide(first + place * STEP, STEP, came, went) for place, (came, went) in enumerate(tides)],
        **options | known,  # type: ignore[arg-type]
    )


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40) | st.integers(0, 3000), st.integers(0, 300)), min_size=1, max_size=60),
    st.integers(0, 5000),
    st.integers(0, 32),
    st.integers(0, 600),
    st.sampled_from([None, COOLING]),
    st.floats(0, 200),
)
def test_a_forecast_does_not_contradict_itself(
    tides: list[tuple[int, int]], pending: int, running: int, waited: int, gate: Gate | None, expected: float
) -> None:
    case = flow(tides, pending, counts={State.RUNNING: running}, waited=waited * SECOND, gate=gate, expected=expected)
    found = forecast_queue(case)
    if found.trend is Trend.GROWS:
        assert found.inflow > found.outflow
    if found.trend is Trend.CLEARS:
        assert found.outflow > found.inflow
    if found.trend is Trend.KEEPS_UP and pending:
        assert gate is None
        assert waited < 30
        assert pending <= max(1.0, found.outflow * 10) or not found.outflow


def test_a_queue_to_which_nothing_comes_does_not_grow() -> None:
    """Regression: two floods without a rhythm were taken for one, and the queue "grew" with 0 in."""
    flooded = [(2700, 2)] * 2 + [(0, 2)] * 60
    found = forecast_queue(flow(flooded * 2, 5000, counts={State.RUNNING: 2}))
    assert (found.trend, found.inflow, found.bursts, found.rushed) == (Trend.CLEARS, 0, 2, 10_800)


def cooling(**known: object) -> QueueForecast:
    return forecast_queue(flow([(5, 5)] * 60 + [(400, 100)] * 2, 839, gate=COOLING, waited=53 * SECOND, **known))


def test_a_queue_whose_members_all_cool_does_not_keep_up() -> None:
    found = cooling()
    assert (found.trend, found.until) == (Trend.STALLED, COOLING.until)
    assert cooling(counts={State.RUNNING: 3}).trend is not Trend.KEEPS_UP


def test_a_queue_with_only_held_tasks_does_not_keep_up() -> None:
    stuck = Gate(
        name="handler", what="", says="", passed=False, cause="handler", sentence="no worker knows", stuck=True
    )
    held = {State.HELD: 7}
    found = forecast_queue(flow([(7, 0)], 0, counts=held, gate=stuck))
    assert (found.trend, found.pinch.cause) == (Trend.STALLED, "handler")
    assert forecast_queue(flow([(7, 0)], 0, counts=held)).trend is Trend.IDLE


def test_tasks_of_an_earlier_flood_say_nothing_of_the_speed_of_slower_ones() -> None:
    """Regression: 157 a second were said of tasks of a second on 32 seats, from short ones before."""
    short, slow = [(1600, 1600)] + [(0, 1570)] * 5 + [(0, 0)] * 6, [(2000, 100), (0, 320)]
    case = flow([*short, *slow], 1548, counts={State.RUNNING: 32}, waited=20 * SECOND, expected=157.0)
    found = forecast_queue(case)
    assert found.trend is Trend.CLEARS
    assert 25 < found.outflow < 40
