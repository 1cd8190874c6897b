"""Figures over time: whatever is added up in whatever order, counts stay exact and quantiles stay true."""

from math import ceil
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pitboss.model.duration import SECOND
from pitboss.model.figures import (
    HOUR,
    KINDS,
    MINUTE,
    MOST_DESTINATIONS,
    MOST_HANDLERS,
    OTHERS,
    RAW,
    Flow,
    FlowCounts,
    HandlerFigures,
    Histogram,
    PoolSample,
    ResourceSample,
    Sample,
    added_flows,
    bucket,
    kinds_of_end,
    merged_samples,
    rolled,
)
from pitboss.model.lifecycle import due_at
from pitboss.model.quantiles import ERROR, place_of, value_at
from pitboss.model.states import FINISHED, State

values = st.lists(st.integers(0, 10**13), min_size=1, max_size=200)
moments = st.integers(0, 3 * HOUR // RAW).map(lambda number: number * RAW)
flows = st.lists(
    st.builds(
        Flow,
        at=moments,
        queue=st.sampled_from("ab"),
        handler=st.sampled_from("xyz"),
        **{kind: st.integers(0, 5) for kind in KINDS},
    ),
    max_size=40,
)


def histogram(values: list[int]) -> Histogram:
    made = Histogram()
    for value in values:
        made.add(value)
    return made


def exact(values: list[int], share: float) -> int:
    return sorted(values)[max(1, ceil(share * len(values))) - 1]


def close(found: int | None, wanted: int) -> bool:
    """Within 5 %; a microsecond more or less is rounding."""
    return found is not None and abs(found - max(wanted, 1)) <= ERROR * wanted + 1


@given(st.lists(values, min_size=1, max_size=8), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_merged_quantiles_are_those_of_all_values(parts: list[list[int]], share: float) -> None:
    merged = Histogram()
    for part in parts:
        merged.merge(histogram(part))
    everything = [value for part in parts for value in part]
    assert close(merged.quantile(share), exact(everything, share))
    assert (merged.n, merged.sum) == (len(everything), sum(everything))


@settings(max_examples=20)
@given(st.integers(0, 10**9), st.floats(0.5, 0.9999))
def test_ten_values_beside_ten_thousand_weigh_as_ten(seed: int, share: float) -> None:
    random = Random(seed)
    many = [random.randrange(1_000, 2_000) for _ in range(10_000)]
    few = [random.randrange(10**9, 2 * 10**9) for _ in range(10)]
    merged = histogram(few)
    merged.merge(histogram(many))
    assert close(merged.quantile(share), exact(few + many, share))


@given(values, values, values)
def test_the_order_of_merging_does_not_matter(first: list[int], second: list[int], third: list[int]) -> None:
    one, other = histogram(first), histogram(third)
    one.merge(histogram(second))
    one.merge(histogram(third))
    other.merge(histogram(second))
    other.merge(histogram(first))
    assert one == other


@given(values)
def test_a_histogram_survives_being_stored(found: list[int]) -> None:
    made = histogram(found)
    assert msgspec.json.decode(msgspec.json.encode(made), type=Histogram) == made


def test_a_histogram_without_values_has_no_quantile() -> None:
    assert (Histogram().quantile(0.95), Histogram().mean) == (None, None)


@given(st.integers(1, 2**53))
def test_a_bucket_is_known_to_five_percent(value: int) -> None:
    assert close(value_at(place_of(value)), value)


@given(flows)
def test_flows_that_are_rolled_up_lose_nothing(found: list[Flow]) -> None:
    hours = added_flows(added_flows(found, MINUTE), HOUR)
    assert hours == added_flows(found, HOUR)
    for kind in KINDS:
        assert sum(getattr(one, kind) for one in hours) == sum(getattr(one, kind) for one in found)


@given(flows)
def test_without_handlers_the_counts_of_a_queue_are_the_same(found: list[Flow]) -> None:
    merged = added_flows(found, HOUR, by_handler=False)
    assert {one.handler for one in merged} <= {""}
    for queue in "ab":
        assert sum(one.put for one in merged if one.queue == queue) == sum(
            one.put for one in found if one.queue == queue
        )


def test_rolled_flows_tell_a_bounded_number_of_handlers_apart() -> None:
    found = [Flow(at=0, queue="q", handler=f"h{number}", put=number + 1) for number in range(3 * MOST_HANDLERS)]
    made = rolled(found, MINUTE)
    assert len(made) == MOST_HANDLERS + 1
    assert sum(one.put for one in made) == sum(one.put for one in found)
    # Rolled up again, with others, the rest stays the rest.
    again = rolled([*made, Flow(at=0, queue="q", handler="new", put=1)], HOUR)
    assert len(again) == MOST_HANDLERS + 1
    assert sum(one.put for one in again) == sum(one.put for one in found) + 1
    assert next(one.put for one in again if one.handler == OTHERS) >= next(
        one.put for one in made if one.handler == OTHERS
    )


def test_counts_become_flows_of_one_bucket() -> None:
    counts = FlowCounts()
    counts.add("put", "q", "b")
    counts.add("put", "q", "a", 2)
    counts.add("put", "q", "a")
    counts.add("lost", "q", "a")
    assert counts.flows(20) == [
        Flow(at=20, queue="q", handler="a", put=3, lost=1),
        Flow(at=20, queue="q", handler="b", put=1),
    ]


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize(("charged", "lost"), [(False, False), (True, False), (False, True), (True, True)])
def test_the_end_of_a_claim_counts_once_for_the_task_and_once_for_its_run(
    state: State, charged: bool, lost: bool
) -> None:
    kinds = kinds_of_end(state, charged=charged, lost=lost)
    assert (state.value in kinds) == (state in FINISHED)
    assert ("lost" in kinds) == lost
    assert ("retried" in kinds) == (charged and not lost and state not in FINISHED)
    assert len(kinds) == len(set(kinds)) <= 2


def sample(at: int, session: int = 1, *, started: int = 1, covered: int = 10, **more: Any) -> Sample:
    figures = HandlerFigures("q", "h", started)
    figures.run.add(started * SECOND)
    return Sample(at=at, session=session, covered=covered, handlers=[figures], **more)


def test_managers_of_one_time_are_added_up_and_cover_it_once() -> None:
    pool = PoolSample({"idle": 20, "busy": 10}, 500, 1, 2)
    (whole,) = merged_samples([sample(0, 1, pools={"p": pool}), sample(0, 2, started=3, pools={"p": pool})], RAW)
    assert (whole.covered, whole.session) == (10, 0)
    assert (whole.handlers[0].started, whole.handlers[0].run.n) == (4, 2)
    assert whole.pools["p"] == PoolSample({"idle": 40, "busy": 20}, 1000, 2, 4)


def workers(covered: int, first: int = 0, *, at: int = 0, session: int = 1, led: int = 0) -> Sample:
    """A manager with four workers and, if it leads, three members, that ran for `covered` seconds of a bucket."""
    pools = {"p": PoolSample({"idle": 4 * covered}, 100 * covered)}
    resources = {"r": ResourceSample({"ready": 3 * led}, 3 * led)} if led else {}
    seen = [(first, first + covered)] if first else []
    return Sample(at=at, session=session, covered=covered, seen=seen, pools=pools, resources=resources, led=led)


@pytest.mark.parametrize(
    ("parts", "covered", "mean"),
    [
        ([workers(3), workers(6, 4, session=2)], 9, 4),
        ([workers(10), workers(10, session=2)], 10, 8),
        ([workers(3), workers(6, 4, session=2), workers(10, session=3)], 10, 7.6),
        ([workers(5), workers(8, 2, session=2)], 10, 5.2),
    ],
)
def test_managers_after_each_other_are_not_counted_as_if_they_ran_at_once(
    parts: list[Sample], covered: int, mean: float
) -> None:
    (whole,) = merged_samples(parts, RAW)
    assert (whole.covered, whole.pools["p"].workers["idle"] / whole.covered) == (covered, mean)
    (hour,) = merged_samples(merged_samples(merged_samples(parts, RAW), MINUTE), HOUR)
    assert (hour.covered, hour.pools["p"].workers) == (covered, whole.pools["p"].workers)
    # Added to what was rolled up before, in any order, it is the same.
    for first, *others in (parts, parts[::-1]):
        found = merged_samples([*merged_samples([first], HOUR), *others], HOUR)
        assert (found[0].covered, found[0].seen) == (hour.covered, hour.seen)


def test_the_members_are_not_counted_twice_where_the_lead_changed() -> None:
    (whole,) = merged_samples([workers(3, led=10), workers(6, 4, session=2, led=10)], RAW)
    assert whole.resources["r"].members["ready"] / whole.led == 3


def test_a_minute_in_which_nobody_ran_for_a_while_is_covered_in_part() -> None:
    (minute,) = merged_samples([sample(0), sample(10 * SECOND, 2), sample(50 * SECOND, 3)], MINUTE)
    assert (minute.covered, minute.span, minute.handlers[0].started) == (30, MINUTE, 3)


@given(
    st.lists(
        st.tuples(moments, st.integers(1, 3), st.integers(1, 9), st.integers(0, 9)),
        max_size=30,
        unique_by=lambda one: one[:2],
    )
)
def test_rolling_up_by_steps_is_rolling_up_at_once(found: list[tuple[int, int, int, int]]) -> None:
    samples = [
        sample(at, session, started=n, covered=10 - first, seen=[(first, 10)] if first else [])
        for at, session, n, first in found
    ]
    at_once, by_steps = merged_samples(samples, HOUR), merged_samples(merged_samples(samples, MINUTE), HOUR)
    assert at_once == by_steps
    assert sum(one.handlers[0].started for one in at_once) == sum(n for _, _, n, _ in found)
    assert sum(one.covered for one in at_once) == sum(
        10 - min(first for at, _, _, first in found if at == moment) for moment in {at for at, *_ in found}
    )


def test_merging_does_not_change_what_is_merged() -> None:
    first = sample(0, resources={"p": ResourceSample({"ready": 10}, 10, 1, 0, {"a": 1})})
    before = msgspec.json.encode(first)
    merged_samples([first, first], RAW)
    assert msgspec.json.encode(first) == before


def test_a_sample_is_bounded_and_loses_nothing() -> None:
    handlers = [HandlerFigures("q", f"h{number}", number + 1) for number in range(2 * MOST_HANDLERS)]
    refusals = {f"site{number}": number + 1 for number in range(2 * MOST_DESTINATIONS)}
    made = Sample(at=0, handlers=handlers, resources={"p": ResourceSample(refusals=refusals)}).bounded()
    assert len(made.handlers) == MOST_HANDLERS + 1
    assert sum(one.started for one in made.handlers) == sum(one.started for one in handlers)
    assert len(made.resources["p"].refusals) == MOST_DESTINATIONS + 1
    assert sum(made.resources["p"].refusals.values()) == sum(refusals.values())


def test_destinations_that_refused_much_are_told_apart_although_others_were_used_more() -> None:
    uses = {f"site{number:03}": 1000 - number for number in range(100)}
    refusals = {"site099": 500, "site098": 400, "site000": 1}
    one = ResourceSample(refusals=refusals, destinations=uses)
    one.bound()
    assert {"site099", "site098", "site000", "site016"} < one.destinations.keys()
    assert len(one.destinations) == MOST_DESTINATIONS + 1
    assert sum(one.destinations.values()) == sum(uses.values())
    assert one.refusals == refusals
    # Bounded again with others, it keeps its others.
    one.merge(ResourceSample(destinations={f"more{number}": 2000 for number in range(30)}))
    one.bound()
    assert sum(one.destinations.values()) == sum(uses.values()) + 60_000
    assert len(one.destinations) == MOST_DESTINATIONS + 1


@given(values, st.integers(1, 100))
def test_a_spread_has_the_quantiles_of_all_values(found: list[int], most: int) -> None:
    histogram = Histogram()
    for value in found:
        histogram.add(value)
    spread = histogram.spread(most)
    assert len(spread) == min(most, len(found))
    assert spread == sorted(spread)
    exact = sorted(found)
    for place, value in enumerate(spread):
        wanted = exact[ceil((place + 0.5) / len(spread) * len(exact)) - 1]
        # The value of a bucket is rounded to a whole number.
        assert abs(value - wanted) <= max(1, ERROR * wanted + 0.5)


def test_a_bucket_begins_at_a_multiple_of_its_length() -> None:
    assert [bucket(at, RAW) for at in (0, RAW - 1, RAW, RAW + 1)] == [0, 0, RAW, RAW]


def test_when_a_task_was_due() -> None:
    known: dict[str, Any] = {"claim": 1, "attempts": 0, "losses": 0, "rotations": 0, "batch": None}
    assert due_at(5, None, **known) == 5
    assert due_at(5, 9, **known) == 9
    for change in ({"attempts": 1}, {"losses": 1}, {"rotations": 1}, {"batch": "b"}, {"claim": 2}):
        assert due_at(5, None, **{**known, **change}) is None
