"""What a launch would do: whose workers, which keys, which resources, and an estimate with its reason."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from pitboss.model.batch import Pause, Resume
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.estimate import Timing, told
from pitboss.model.figures import RAW, HandlerFigures, Sample, bucket
from pitboss.model.finding import Grade
from pitboss.model.limits import Window, rate
from pitboss.model.outcome import Completed
from pitboss.model.partition import Mode, Partitioning
from pitboss.model.pool import PoolSpec
from pitboss.model.queue import HandlerInfo, QueueSettings
from pitboss.model.resource import HOUR, Limits, NewResource, PoolRules, ResourceChange
from pitboss.model.session import Slot
from pitboss.model.snapshot import PoolFigures, Snapshot
from pitboss.operate.desired_state import scale_pool
from pitboss.operate.plan import Launch, LaunchPlan, QueuePlan, plan_document, read_plan
from pitboss.testing.conformance import Bench, Subject

TABLE = {0: ("CA", "MT"), 1: ("TX",), 2: ("NY",)}
CRAWL = HandlerInfo(name="job", queue="targets", about='{"usual": 12000000}')
POOL = PoolSpec(name="web", queues=("targets",), max_workers=3, concurrency=1)


def launch(*pools: PoolSpec, mode: Mode = "static", handler: HandlerInfo = CRAWL, **given: Any) -> Launch:
    spec = Partitioning(by="{state}", mode=mode, table=TABLE if mode == "static" else {}, **given)
    return Launch(pools=pools or (POOL,), queues={"targets": QueueSettings(partitions=spec)}, handlers=[handler])


def plain(*pools: PoolSpec, handler: HandlerInfo = CRAWL, **settings: Any) -> Launch:
    return Launch(pools=pools or (POOL,), queues={"targets": QueueSettings(**settings)}, handlers=[handler])


async def targets(bench: Bench, *states: str, spec: Launch | None = None) -> None:
    if spec is not None:
        await bench.store.declare(Declared(app="a", queues=dict(spec.queues)), session=bench.me.number)
    await bench.put(*(bench.new(queue="targets", params=f'{{"state":"{state}"}}') for state in states))


async def read(bench: Bench, wanted: Launch) -> LaunchPlan:
    return await read_plan(bench.store, wanted, bench.now)


async def read_one(bench: Bench, wanted: Launch) -> QueuePlan:
    (found,) = (await read(bench, wanted)).queues
    return found


async def run(bench: Bench, number: int, *, took: str = "2s", queue: str = "targets") -> None:
    """This number of tasks run one after the other, each in this time."""
    for _ in range(number):
        claim = await bench.take(queue)
        bench.clock.advance(took)
        await bench.report(claim, Completed(), worker="web-1")


async def shot(bench: Bench, *pools: PoolFigures) -> None:
    await bench.renew(bench.me, msgspec.json.encode(Snapshot(pools=pools)).decode())


async def proxies(bench: Bench, number: int, **limits: Any) -> HandlerInfo:
    await bench.store.declare_pool("proxies", PoolRules(limits=Limits(**limits)))
    await bench.store.add_resources("proxies", [NewResource(name=f"p{n}") for n in range(number)])
    handler = msgspec.structs.replace(CRAWL, resources="proxies")
    await bench.store.register([handler])
    return handler


def grades(found: LaunchPlan) -> dict[str, Grade]:
    return {one.check: one.grade for one in found.findings}


class TestPlan(Subject):
    async def test_keys_go_to_the_slots_that_workers_would_get(self, bench: Bench) -> None:
        wanted = launch()
        await targets(bench, "CA", "CA", "MT", "TX", spec=wanted)
        found = await read_one(bench, wanted)
        assert [(one.slot, one.keys, one.manned) for one in found.slots] == [
            ("web/0", {"CA": 2, "MT": 1}, True),
            ("web/1", {"TX": 1}, True),
            ("web/2", {"NY": 0}, True),
        ]
        assert (found.left, found.waiting, found.workers) == (4, 0, 3)
        assert told(found.estimate).startswith("bound by slot web/0, which has 75% of the work: ")
        assert list(found.otherwise) == ["with mode balanced", "with half the workers"]

    async def test_items_of_paused_batches_are_left_out_of_the_estimate(self, bench: Bench) -> None:
        """They were counted as if they would run."""
        wanted = plain(handler=msgspec.structs.replace(CRAWL, queue="targets"))
        await bench.put(*(bench.new(queue="targets") for _ in range(30)))
        before = await read_one(bench, wanted)
        alone = await bench.create(*(bench.new(queue="targets") for _ in range(50)), name="alone")
        mixed = await bench.create(
            *(bench.new(queue="targets") for _ in range(20)),
            *(bench.new(queue="other") for _ in range(7)),
            name="mixed",
        )
        assert [one.estimate.left for one in (await read(bench, wanted)).queues] == [7, 100]
        for batch in (alone, mixed):
            await bench.act(batch, Pause())
        plan = await read(bench, wanted)
        _, found = plan.queues
        assert (found.left, found.paused, found.waiting, found.estimate.left) == (100, 70, 70, 30)
        assert found.estimate.time == before.estimate.time
        (warned,) = [one for one in plan.findings if one.check == "batches" and "targets" in one.what]
        assert warned.what == 'queue "targets": 70 tasks wait for paused batches'
        assert {one["queue"]: one["paused"] for one in plan_document(plan)["queues"]} == {"targets": 70, "other": 7}
        await bench.act(mixed, Resume())
        assert (await read(bench, wanted)).queues[-1].paused == 50

    async def test_keys_have_their_part_of_the_items_of_paused_batches(self, bench: Bench) -> None:
        wanted = launch()
        states = ("CA", "CA", "TX", "NY")
        await targets(bench, *states, spec=wanted)
        before = await read_one(bench, wanted)
        items = (bench.new(queue="targets", params=f'{{"state":"{state}"}}') for state in states)
        batch = await bench.create(*items)
        await bench.act(batch, Pause())
        found = await read_one(bench, wanted)
        assert (found.left, found.paused, found.estimate.left) == (8, 4, 4)
        assert told(found.estimate) == told(before.estimate)
        assert told(found.estimate).startswith("bound by slot web/0, which has 50% of the work: ")

    async def test_runs_that_were_measured_before_count_more_than_what_is_declared(self, bench: Bench) -> None:
        await targets(bench, "CA")
        measured = HandlerFigures("targets", "job")
        for seconds in (3, 4, 5) * 20:
            measured.run.add(seconds * SECOND)
        await bench.store.add_samples([Sample(at=0, session=1, covered=10, handlers=[measured])])
        assert (await read_one(bench, plain())).timing == Timing(mean=12 * SECOND, unsure=0.25)
        days_ago = bucket(bench.now - 5 * 24 * HOUR, RAW)
        await bench.store.add_samples([Sample(at=days_ago, session=1, covered=10, handlers=[measured])])
        found = (await read_one(bench, plain())).timing
        assert found is not None
        assert found.samples == 60
        assert found.mean / SECOND == pytest.approx(4, rel=0.05)
        # Tasks that have ended say more.
        await targets(bench, *["CA"] * 40)
        await run(bench, 30)
        assert (await read_one(bench, plain())).timing.mean == 2 * SECOND  # type: ignore[union-attr]

    async def test_slots_that_no_worker_gets_are_left_out_of_the_estimate(self, bench: Bench) -> None:
        wanted = launch(msgspec.structs.replace(POOL, only=(0,)))
        await targets(bench, "CA", "TX", "TX", "NY", spec=wanted)
        plan = await read(bench, wanted)
        found = plan.queues[0]
        assert [one.manned for one in found.slots] == [True, False, False]
        assert (found.left, found.stranded, found.estimate.left) == (4, {"NY": 1, "TX": 2}, 1)
        (warned,) = [one for one in plan.findings if one.check == "partitions"]
        assert warned.what == 'queue "targets": no worker has 2 slots (web/1, web/2)'
        assert warned.why == "3 tasks of 2 keys wait for them"
        assert warned.fix.startswith("start all workers with pitboss up, or these with pitboss up --only 1-2; ")

    @pytest.mark.parametrize(
        ("pool", "fix"),
        [
            (None, "start more managers, whose workers take free slots, or more workers: pitboss up --pool web=3; or "),
            ("wep", "name a pool that serves the queue (web): the table counts the slots of wep"),
        ],
    )
    async def test_a_slot_that_no_worker_of_the_launch_could_get_is_not_named_as_one_to_start(
        self, bench: Bench, pool: str | None, fix: str
    ) -> None:
        """It said `pitboss up --only 1-2`, which is refused in a pool of one worker."""
        wanted = launch(msgspec.structs.replace(POOL, max_workers=1), pool=pool)
        await targets(bench, "CA", "TX", spec=wanted)
        (warned,) = [one for one in (await read(bench, wanted)).findings if one.check == "partitions"]
        assert warned.fix.startswith(fix)

    @pytest.mark.parametrize("host", [None, "here"])
    async def test_a_launch_has_as_many_workers_as_an_operator_wants(self, bench: Bench, host: str | None) -> None:
        """It counted the configured ones, also after `pitboss pools scale web 0`."""
        wanted = msgspec.structs.replace(launch(), host="here")
        await targets(bench, "CA", "TX", spec=wanted)
        await shot(bench, PoolFigures(name="web", wanted=3, concurrency=1, queues=("targets",)))
        await scale_pool(bench.store, bench.now, "web", 1, host=host, by="ann")
        await bench.store.end_session(bench.me.number)
        plan = await read(bench, wanted)
        assert (plan.queues[0].workers, plan.starts, plan.queues[0].stranded) == (1, 1, {"TX": 1})
        await scale_pool(bench.store, bench.now, "web", 0, host=host, by="ann")
        plan = await read(bench, wanted)
        (warned,) = [one for one in plan.findings if one.check == "workers"]
        assert (plan.starts, warned.fix) == (0, "pitboss pools scale web auto")

    async def test_chosen_workers_are_scaled_to_nothing_only(self, bench: Bench) -> None:
        wanted = launch(msgspec.structs.replace(POOL, only=(2,)))
        await targets(bench, "NY", spec=wanted)
        await shot(bench, PoolFigures(name="web", wanted=3, concurrency=1, queues=("targets",)))
        await scale_pool(bench.store, bench.now, "web", 1, by="ann")
        await bench.store.end_session(bench.me.number)
        assert (await read(bench, wanted)).starts == 1
        await scale_pool(bench.store, bench.now, "web", 0, by="ann")
        assert (await read(bench, wanted)).starts == 0

    async def test_keys_that_are_not_in_the_table_are_left_out_of_the_estimate(self, bench: Bench) -> None:
        """They were counted as tasks that end."""
        wanted = launch()
        await targets(bench, "CA", "ZZ", "ZZ", "QQ", spec=wanted)
        plan = await read(bench, wanted)
        found = plan.queues[0]
        assert (found.left, found.unlisted, found.estimate.left) == (4, {"QQ": 1, "ZZ": 2}, 1)
        assert found.otherwise["with mode balanced"].left == 4, "then no key waits"
        (warned,) = [one for one in plan.findings if one.check == "partitions"]
        assert warned.what == 'queue "targets": 3 tasks cannot start: not in the table: QQ, ZZ'
        document = plan_document(plan)["queues"][0]
        assert (document["left"], document["can_end"], document["not_in_table"]) == (4, 1, 3)

    @pytest.mark.parametrize("on_missing", ["reassign", "steal"])
    async def test_keys_that_other_slots_take_can_end(self, bench: Bench, on_missing: str) -> None:
        wanted = launch(msgspec.structs.replace(POOL, max_workers=1), on_missing=on_missing)
        await targets(bench, "CA", "TX", "ZZ", spec=wanted)
        found = await read_one(bench, wanted)
        assert (found.waiting, found.estimate.left) == (0, 3)

    async def test_a_queue_whose_tasks_all_wait_has_something_left(self, bench: Bench) -> None:
        """It said that nothing was left to do."""
        wanted = launch(msgspec.structs.replace(POOL, max_workers=1))
        await targets(bench, "TX", "NY", "ZZ", spec=wanted)
        found = await read_one(bench, wanted)
        assert (found.estimate.left, found.waiting) == (0, 3)
        assert told(found.estimate) == "no end: 3 tasks cannot start"

    async def test_only_some_places_of_a_pool(self, bench: Bench) -> None:
        wanted = launch(msgspec.structs.replace(POOL, only=(1,)))
        await targets(bench, "CA", "TX", spec=wanted)
        assert [one.manned for one in (await read_one(bench, wanted)).slots] == [False, True, False]

    async def test_keys_of_balanced_slots_are_divided_as_the_leader_would(self, bench: Bench) -> None:
        wanted = launch(mode="balanced")
        await targets(bench, *["CA"] * 6, *["TX"] * 3, *["NY"] * 3, *["FL"] * 3, *["WA"] * 3, spec=wanted)
        found = await read_one(bench, wanted)
        assert sorted(one.tasks for one in found.slots) == [6, 6, 6]
        assert found.estimate.bound is not None
        assert found.estimate.bound.kind in ("workers", "key")

    async def test_workers_that_run_count_instead_of_those_of_the_settings(self, bench: Bench) -> None:
        await targets(bench, "CA")
        await shot(
            bench, PoolFigures(name="web", queues=("targets",), concurrency=4, wanted=2, delay=(SECOND, 3 * SECOND))
        )
        found = await read_one(bench, plain())
        assert [(one.pool, one.workers, one.concurrency, one.delay, one.host) for one in found.crews] == [
            ("web", 2, 4, 2 * SECOND, "here")
        ]
        joined = await read_one(bench, msgspec.structs.replace(plain(), joins=True))
        assert [(one.host, one.workers) for one in joined.crews] == [("here", 2), ("", 3)]

    async def test_slots_that_are_kept_for_a_manager_that_has_just_stopped_are_named(self, bench: Bench) -> None:
        """The plan promised the slots 0-1 at once, which another node gets when they are free."""
        wanted = launch(PoolSpec(name="web", queues=("targets",), min_workers=2, max_workers=2))
        await targets(bench, "CA", spec=wanted)
        before = await bench.session("job")
        await bench.store.take_slots(before.number, "web", "box-1", [0, 1], queues=("targets",))
        await bench.end(before)
        found = await read(bench, wanted)
        said = [one for one in found.findings if "kept for box-1" in one.what]
        assert [one.grade for one in said] == [Grade.WARNING]
        assert "web/0, web/1 are kept" in said[0].what
        bench.clock.advance("1h")
        assert not [one for one in (await read(bench, wanted)).findings if "kept for" in one.what]

    async def test_new_workers_get_the_free_slots(self, bench: Bench) -> None:
        wanted = msgspec.structs.replace(launch(mode="balanced"), joins=True)
        await targets(bench, "CA", "TX", spec=wanted)
        await bench.store.take_slots(bench.me.number, "web", "here", [0, 1], queues=("targets",))
        await shot(bench, PoolFigures(name="web", queues=("targets",), concurrency=1, wanted=2))
        found = await read_one(bench, wanted)
        assert [one.slot for one in found.slots] == ["web/0", "web/1", "web/2", "web/3", "web/4"]

    async def test_durations_are_measured_or_declared_or_unknown(self, bench: Bench) -> None:
        await targets(bench, *["CA"] * 30)
        silent = HandlerInfo(name="job", queue="targets")
        assert (await read_one(bench, plain(handler=silent))).timing is None
        found = await read_one(bench, plain())
        assert found.timing is not None
        assert (found.timing.mean, found.timing.samples) == (12 * SECOND, 0)
        await run(bench, 20)
        found = await read_one(bench, plain())
        assert found.timing is not None
        assert (found.timing.mean, found.timing.samples, found.timing.pace) == (2 * SECOND, 20, 0.5)
        assert (found.done, found.left) == (20, 10)
        assert found.progress == pytest.approx(2 / 3)
        assert found.estimate.time is not None
        assert found.estimate.time.middle == pytest.approx(10 / 3 * 2 * SECOND)

    async def test_the_limits_of_proxies_that_are_usable_count(self, bench: Bench) -> None:
        handler = await proxies(bench, 10, windows=(Window(60, HOUR),), guard=1)
        await targets(bench, *["CA"] * 50)
        plan = await read(bench, plain(handler=handler))
        found = plan.queues[0]
        assert found.resource is not None
        assert (found.resource.usable, found.resource.members) == (10, 10)
        assert found.resource.per_hour == pytest.approx(600)
        assert list(found.otherwise) == ["with half the workers", "with twice the proxies"]
        assert grades(plan)["resources"] is Grade.OK
        await bench.store.change_resources("proxies", [f"p{n}" for n in range(5)], ResourceChange(enabled=False))
        plan = await read(bench, plain(handler=handler))
        assert grades(plan)["resources"] is Grade.WARNING
        assert [one.what for one in plan.findings] == ["5 of 10 members of proxies are usable"]
        await bench.store.change_resources("proxies", [f"p{n}" for n in range(10)], ResourceChange(enabled=False))
        plan = await read(bench, plain(handler=handler))
        assert grades(plan)["resources"] is Grade.PROBLEM
        assert "which has no enabled member" in told(plan.queues[0].estimate)

    async def test_the_rate_of_the_queue_counts(self, bench: Bench) -> None:
        await targets(bench, *["CA"] * 50)
        found = await read_one(bench, plain(rate=rate("1/min")))
        assert told(found.estimate).startswith("bound by the rate (1 per 1m): 60/h; 50 tasks; 50 min")

    async def test_other_queues_of_the_same_workers_count(self, bench: Bench) -> None:
        everywhere = msgspec.structs.replace(POOL, queues=None, max_workers=1)
        mail = HandlerInfo(name="mail", queue="mail", about='{"usual": 100000000}')
        await targets(bench, "CA")
        await bench.add(queue="mail")
        wanted = msgspec.structs.replace(plain(everywhere), handlers=[CRAWL, mail])
        found = {one.queue.name: one for one in (await read(bench, wanted)).queues}
        assert {name: one.estimate.time and one.estimate.time.middle for name, one in found.items()} == {
            "mail": 112 * SECOND,
            "targets": 112 * SECOND,
        }

    async def test_a_queue_that_no_worker_serves_is_a_problem(self, bench: Bench) -> None:
        await targets(bench, "CA")
        plan = await read(bench, plain(msgspec.structs.replace(POOL, queues=("mail",))))
        assert grades(plan)["workers"] is Grade.PROBLEM
        await bench.change("targets", paused=True)
        assert grades(await read(bench, plain()))["queues"] is Grade.WARNING

    async def test_an_empty_store_has_nothing_to_do(self, bench: Bench) -> None:
        plan = await read(bench, launch())
        assert told(plan.queues[0].estimate) == "nothing is left to do"
        assert grades(plan) == {"partitions": Grade.OK, "tasks": Grade.OK}

    async def test_the_document_is_plain_data(self, bench: Bench) -> None:
        handler = await proxies(bench, 2)
        wanted = launch(handler=handler)
        await targets(bench, "CA", "MT", "TX", spec=wanted)
        document = plan_document(await read(bench, wanted))
        assert msgspec.json.decode(msgspec.json.encode(document)) == document
        (queue,) = document["queues"]
        assert queue["slots"][0] == {"slot": "web/0", "keys": {"CA": 1, "MT": 1}, "manned": True, "tasks": 2}
        assert queue["resources"]["usable"] == 2
        assert queue["estimate"]["bound_by"] == "slot"
        assert queue["estimate"]["seconds"] == 24.0
        assert queue["what_if"]["with mode balanced"]["seconds"] == 18.0

    async def test_the_number_of_reads_does_not_depend_on_the_tasks(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wanted = launch()
        counts = []
        await targets(bench, "CA", spec=wanted)
        await bench.store.take_slots(bench.me.number, "web", "here", [0])
        for more in ([], ["CA", "TX", "NY"] * 30):
            await targets(bench, *more)
            calls = counted_calls(bench, monkeypatch)
            await read(bench, wanted)
            counts.append(len(calls))
            monkeypatch.undo()
        assert counts[0] == counts[1]

    async def test_a_claim_by_slot_is_what_the_plan_says(self, bench: Bench) -> None:
        """The keys that the plan gives to a slot are those that its worker gets from the leader's assignment."""
        wanted = launch()
        await targets(bench, "CA", "TX", spec=wanted)
        planned = {key: one.slot for one in (await read_one(bench, wanted)).slots for key in one.keys}
        await bench.store.take_slots(bench.me.number, "web", "here", [0, 1, 2], queues=("targets",))
        term = (await bench.store.campaign(bench.me.number)).term
        await bench.store.assign("targets", planned, term=term)
        claimed = await bench.ask(Slot(free=9, pool="web", number=1, queues=("targets",)))
        assert [claim.params for claim in claimed.claims] == ['{"state":"TX"}']


def counted_calls(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Sequence[str]:
    calls: list[str] = []
    for name in ("sessions", "queues", "handlers", "find", "count", "partitions", "slots", "resource_pools", "wishes"):
        verb = getattr(bench.store, name)

        def counting(*args: Any, verb: Any = verb, name: str = name, **options: Any) -> Any:
            calls.append(name)
            return verb(*args, **options)

        monkeypatch.setattr(bench.store, name, counting)
    return calls
