"""Reading figures: series with a value for each step, and gaps that are gaps."""

from typing import Any

import msgspec
import pytest

from pitboss.model.duration import SECOND
from pitboss.model.errors import InvalidInput, NotFound, Unsupported
from pitboss.model.figures import HOUR, MINUTE, RAW, HandlerFigures, PoolSample, ResourceSample, Sample, bucket
from pitboss.model.happening import Kind, happening
from pitboss.model.session import SessionInfo
from pitboss.operate.documents import utc
from pitboss.operate.figures import (
    Destination,
    FigureReading,
    figures_document,
    read_destinations,
    read_figures,
)
from pitboss.operate.overview import read_overview
from pitboss.operate.pulse import read_pulse
from pitboss.upkeep.roll_up import join_managers
from tests.operate.bench import Bench


def sample(at: int, *, session: int = 1, span: int = RAW, waits: tuple[int, ...] = (), **more: Any) -> Sample:
    """Of ten seconds, in which tasks of "greet" waited that many seconds and ran for two."""
    figures = HandlerFigures("default", "greet", len(waits))
    for seconds in waits:
        figures.wait.add(seconds * SECOND)
        figures.run.add(2 * SECOND)
    known = {"covered": span // SECOND, "led": span // SECOND}
    return Sample(at=at, span=span, session=session, handlers=[figures], **{**known, **more})


async def read(store: Bench, **options: Any) -> FigureReading:
    return await read_figures(store, store.now, **{"since": MINUTE, "step": RAW, **options})


def total(found: FigureReading, name: str) -> float:
    return sum(one or 0 for one in found.series[name])


async def test_flows_are_counted_in_each_step(store: Bench) -> None:
    await store.add(*(store.new() for _ in range(3)))
    store.time.advance(20)
    await store.run_all()
    await store.add(store.new())
    await store.run_all(fail="no")
    store.time.advance(13)
    found = await read(store)
    assert found.series["put"][-3:] == (3, 0, 1)
    assert found.series["in"] == found.series["put"]
    assert [total(found, name) for name in ("completed", "failed", "out")] == [3, 1, 4]
    assert {len(values) for values in found.series.values()} == {len(found.moments)}


async def test_rates_of_a_step_that_goes_on_are_of_the_time_that_has_passed(store: Bench) -> None:
    # The long step has only 20 s of its minute behind it.
    store.time.advance(-store.now % MINUTE / SECOND + 24)
    await store.add(*[store.new(params='{"name":"you"}') for _ in range(40)])
    store.time.advance(MINUTE / SECOND)
    await store.add(*[store.new(params='{"name":"you"}') for _ in range(10)])
    found = await read(store, since=10 * MINUTE, step=MINUTE)
    assert found.until - found.moments[-1] == 20 * SECOND
    assert found.per_second("in")[-2:] == (40 / 60, 0.0)
    store.time.advance(10)
    assert (await read(store, since=10 * MINUTE, step=MINUTE)).per_second("in")[-1] == 10 / 30


async def test_what_nobody_measured_is_none_and_not_zero(store: Bench) -> None:
    begun = store.now
    for place in (0, 1, 4):
        await store.add_samples([sample(begun + place * RAW, waits=(1, 3))])
    store.time.advance(53)
    found = await read(store)
    at = found.moments.index(begun)
    assert found.series["started"][at : at + 5] == (2, 2, None, None, 2)
    assert found.series["covered"][at : at + 5] == (1, 1, 0, 0, 1)
    assert found.series["out"][at : at + 5] == (0, 0, 0, 0, 0)
    assert found.unmeasured == [(begun + 2 * RAW, begun + 4 * RAW)]
    wait = found.series["wait_p95"][at]
    assert wait is not None
    assert abs(wait - 3) < 0.15
    document = figures_document(found)
    assert document["series"]["started"][at + 2] is None
    assert len(document["unmeasured"]) == 1
    assert len(document["at"]) == len(found.moments)


async def test_a_step_in_which_managers_ran_without_tasks_is_zero(store: Bench) -> None:
    begun = store.now
    await store.add_samples([sample(begun)])
    store.time.advance(13)
    found = await read(store)
    at = found.moments.index(begun)
    assert (found.series["started"][at], found.series["wait_p95"][at]) == (0, None)


async def test_the_bucket_that_is_not_over_is_not_shown(store: Bench) -> None:
    store.time.advance(5)
    assert (await read(store)).until == bucket(store.now - 3 * SECOND, RAW)


async def test_figures_of_a_queue_and_of_a_handler(store: Bench) -> None:
    await store.add(store.new(), store.new(queue="mail"))
    await store.add_samples([sample(store.now, waits=(1,))])
    store.time.advance(13)
    mail, greet = await read(store, queue="mail"), await read(store, handler="greet")
    assert (total(mail, "in"), total(greet, "in")) == (1, 2)
    assert (mail.series["started"][-1], greet.series["started"][-1]) == (0, 1)


async def test_the_workers_of_a_pool(store: Bench) -> None:
    begun = store.now
    pools = {"default": PoolSample({"idle": 10, "processing": 20}, 5000, 1, 2)}
    await store.add_samples([sample(begun, pools=pools), sample(begun, session=2, pools=pools)])
    store.time.advance(13)
    found = await read(store, pool="default")
    last = {name: values[-1] for name, values in found.series.items()}
    assert (last["workers_idle"], last["workers_processing"], last["memory"]) == (2, 4, 1_000_000_000)
    assert (last["restarts"], last["crashes"]) == (2, 4)
    assert found.series["workers_idle"][0] is None


async def test_the_members_of_a_pool(store: Bench) -> None:
    begun = store.now
    told = {"proxies": ResourceSample({"ready": 20, "cooling": 10}, 20, 5, 1, {"a": 1, "b": 3}, {"a": 2, "b": 3})}
    own = {"proxies": ResourceSample({}, 0, 2, 0, {"b": 1}, {"b": 1, "c": 1})}
    await store.add_samples([sample(begun, resources=told), sample(begun, session=2, led=0, resources=own)])
    store.time.advance(13)
    found = await read(store, pool="proxies")
    last = {name: values[-1] for name, values in found.series.items()}
    assert (last["members_ready"], last["members_cooling"], last["usable"]) == (2, 1, 2)
    assert (last["uses"], last["limits_met"], last["refused"]) == (7, 1, 5)
    assert list(found.refusals.items()) == [("b", 4), ("a", 1)]
    assert list(found.destinations.items()) == [
        ("b", Destination(4, 4)),
        ("a", Destination(2, 1)),
        ("c", Destination(1, 0)),
    ]
    assert figures_document(found)["destinations"]["a"] == {"uses": 2, "refused": 1}
    assert await read_destinations(store, store.now, "proxies") == found.destinations
    assert await read_destinations(store, store.now, "nope") == {}


async def test_destinations_that_no_task_named_are_not_worth_a_table(store: Bench) -> None:
    unnamed = {"proxies": ResourceSample(uses=4, destinations={"(unknown)": 4})}
    await store.add_samples([sample(store.now, resources=unnamed)])
    store.time.advance(13)
    assert await read_destinations(store, store.now, "proxies") == {}


async def test_old_figures_have_longer_steps(store: Bench) -> None:
    hour = bucket(store.now, HOUR)
    await store.add_samples([sample(hour, span=HOUR, waits=(1,))])
    store.time.advance(2.5 * 3600)
    assert (await read(store, since=3 * HOUR, step=MINUTE)).step == HOUR
    assert (await read(store, since=HOUR, step=None)).step == MINUTE
    assert (await read(store, since=24 * HOUR, step=None)).step % HOUR == 0


async def fleet(store: Bench, managers: int, since: int) -> None:
    """Samples of that many managers, each with one worker and one started task every ten seconds."""
    pools = {"p": PoolSample({"idle": 10}, 10)}
    for at in range(bucket(store.now - since, RAW), store.now - RAW, RAW):
        await store.add_samples([sample(at, session=one, waits=(1,), pools=pools) for one in range(1, managers + 1)])


async def test_a_chart_of_forty_managers_has_the_newest_part_too(store: Bench) -> None:
    await fleet(store, 40, 2 * HOUR)
    session = await store.open_session(SessionInfo(host="h", ttl=HOUR))
    term = (await store.campaign(session.number)).term
    store.time.advance(3)
    await join_managers(store, 0, store.now, term=term)
    found = await read(store, since=2 * HOUR, step=MINUTE)
    workers = await read(store, since=2 * HOUR, step=MINUTE, pool="p")
    assert (found.measured_since, found.unmeasured) == (None, [])
    assert set(found.series["started"][1:-1]) == {6 * 40}
    assert set(workers.series["workers_idle"][1:-1]) == {40}
    pulse = await read_pulse(store, store.now)
    assert set(pulse.ready[1:-1]) == {40}
    overview = await read_overview(store, store.now, HOUR)
    assert (overview.measured_since, round(overview.covered)) == (None, 1)


async def test_what_is_too_much_to_read_is_told_and_is_the_oldest(store: Bench) -> None:
    await fleet(store, 40, 2 * HOUR)
    store.time.advance(3)
    found = await read(store, since=2 * HOUR, step=MINUTE)
    at = found.measured_since
    assert at is not None
    # 20,000 samples of forty managers are those of 83 minutes; whole pages are read.
    assert (found.until - at) // MINUTE in (83, 84)
    place = (at - found.since) // MINUTE
    assert set(found.series["started"][: place + 1]) == {None}
    assert set(found.series["covered"][: place + 1]) == {None}
    assert set(found.series["started"][place + 1 : -1]) == {6 * 40}
    assert found.unmeasured == []
    document = figures_document(found)
    assert document["measured_since"] == utc(at)
    overview = await read_overview(store, store.now, 2 * HOUR)
    assert overview.measured_since is not None
    assert overview.covered == pytest.approx(1, abs=0.01)


async def test_a_bucket_with_more_managers_than_a_page_is_read_as_a_whole(store: Bench) -> None:
    await fleet(store, 1300, MINUTE)
    store.time.advance(3)
    found = await read(store)
    assert set(found.series["started"][:-1]) == {1300}


async def test_the_number_of_points_is_bounded(store: Bench) -> None:
    found = await read(store, since=2 * HOUR, step=None, points=40)
    assert 20 <= len(found.moments) <= 41


@pytest.mark.parametrize("options", [{"since": SECOND}, {"step": SECOND}, {"step": 15 * SECOND}])
async def test_what_cannot_be_read_is_refused(store: Bench, options: dict[str, int]) -> None:
    with pytest.raises(InvalidInput):
        await read(store, **options)


@pytest.mark.parametrize("options", [{"queue": "no"}, {"handler": "no"}, {"pool": "no"}])
async def test_unknown_names_are_refused(store: Bench, options: dict[str, str]) -> None:
    await store.add(store.new())
    with pytest.raises(NotFound):
        await read(store, **options)


async def test_an_engine_without_figures_says_so() -> None:
    class Plain:
        name = "plain"

    store: Any = Plain()
    with pytest.raises(Unsupported):
        await read_figures(store, 0)


async def deploy(store: Bench, release: str) -> None:
    details = {"release": release}
    made = happening(store.new_id(), store.now, Kind.RELEASE_CHANGED, "app shop", "another one", details=details)
    await store.record_happenings([made])


async def test_the_newest_releases_of_the_time_are_told(store: Bench) -> None:
    await deploy(store, "too-old")
    store.time.advance(3600)
    begun = store.now
    for number in range(22):
        await deploy(store, f"r{number}")
        store.time.advance(20)
    found = await read(store, since=HOUR // 2, step=MINUTE)
    assert [one.release for one in found.releases] == [f"r{number}" for number in range(2, 22)]
    assert found.releases[0].at == begun + 2 * 20 * SECOND
    told = figures_document(found)["releases"][-1]
    assert told == {"at": utc(begun + 21 * 20 * SECOND), "app": "shop", "release": "r21"}
    assert (await read(store, since=MINUTE)).releases[0].release == "r19"


async def test_the_document_is_json(store: Bench) -> None:
    await store.add(store.new())
    store.time.advance(13)
    assert msgspec.json.decode(msgspec.json.encode(figures_document(await read(store))))["step"] == 10
