"""The leader's look at alerts on the memory engine: what it sends, what it stores, and what the next leader does."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from pitboss.client.alert_facts import read_alert_facts
from pitboss.model.alert import AlertRule, Phase
from pitboss.model.alert_look import read_notes
from pitboss.model.alert_message import ChannelSpec, Kind, read_message
from pitboss.model.alert_rules import AlertsSpec, rules_of
from pitboss.model.batch import NewBatch
from pitboss.model.duration import SECOND
from pitboss.model.errors import NotLeader
from pitboss.model.figures import HOUR, RAW, HandlerFigures, Sample, bucket
from pitboss.model.filter import by
from pitboss.model.happening import Kind as Happening
from pitboss.model.happening import Severity as Happened
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.resource import Limits, NewResource, PoolRules, Report, ResourceOutcome, Want
from pitboss.model.schedule import ScheduleSpec
from pitboss.model.snapshot import PoolFigures, Snapshot, WorkerFigures, WorkerState
from pitboss.model.states import State
from pitboss.model.task import Task
from pitboss.upkeep.alerts import ALERT_SECONDS, Alerter
from tests.operate.bench import GREET, Bench

OPS = ChannelSpec(name="ops", type="webhook", url="https://example.org")
LOG = ChannelSpec(name="log", type="log")
MINUTE = 60 * SECOND
MB = 10**6


def workers(
    number: int = 4, *, crashes: int = 0, rss: int = 0, soft: int = 0, state: Any = WorkerState.IDLE
) -> Snapshot:
    return Snapshot(
        target="app.py",
        pools=(PoolFigures(name="default", wanted=number, memory=soft),),
        workers=tuple(
            WorkerFigures(name=f"default-{n}", pid=n, crashes=crashes if n == 1 else 0, rss=rss, state=state)
            for n in range(1, number + 1)
        ),
    )


class World:
    """A store, a manager that leads, and time that passes look by look."""

    def __init__(self, *channels: ChannelSpec, digest: int = 15 * MINUTE, **rules: dict[str, Any] | None) -> None:
        self.store, self.logged = Bench(), list[str]()
        self.spec = AlertsSpec(rules=rules_of(rules), channels=channels or (OPS,), digest=digest, store="store")
        self.noted = list[tuple[Happening, str, str, Happened | None]]()
        self.term, self.session = 0, 0
        self.alerter: Alerter

    async def begin(self, snapshot: Snapshot | None = None) -> None:
        """A manager with these workers leads from now on."""
        leader = await self.store.leader()
        if leader is not None:
            await self.store.end_session(leader.session)
        self.session = await self.store.manager(snapshot or workers(), pid=self.term + 1)
        self.term = (await self.store.campaign(self.session)).term
        self.alerter = Alerter(
            self.store, self.store, lambda: self.spec, self.store.clock, log=self.logged.append, note=self.note
        )
        await self.store.register([GREET, *(one.info("app") for one in self.spec.outside)])

    def note(
        self, kind: Happening, subject: str, text: str, *_: Any, severity: Happened | None = None, **__: Any
    ) -> None:
        self.noted.append((kind, subject, text, severity))

    async def show(self, snapshot: Snapshot) -> None:
        await self.store.renew(self.session, msgspec.json.encode(snapshot).decode())

    async def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.store.time.advance(ALERT_SECONDS)
            await self.store.renew(self.session)
            await self.alerter.look(self.term)

    async def sent(self, channel: str = "ops") -> Sequence[Task]:
        found = await self.store.find(by(task=f"pitboss.alerts.{channel}"), oldest_first=True, limit=1000)
        return found.tasks

    async def kinds(self) -> list[Kind]:
        return [read_message(one.params).kind for one in await self.sent()]

    async def firing(self) -> list[str]:
        notes = read_notes((await self.store.alert_board()).notes)
        return sorted(name for name, one in notes.alerts.items() if one.phase is Phase.FIRING)

    async def fail(self, number: int) -> None:
        await self.store.add(*(self.store.new() for _ in range(number)))
        await self.store.run_all(fail="boom")

    async def use(self, outcome: ResourceOutcome) -> None:
        lease = self.store.new_id()
        await self.store.acquire("proxies", Want(), MINUTE, lease=lease)
        await self.store.release(lease, Report(outcome=outcome))

    async def complete(self, number: int) -> None:
        await self.store.add(*(self.store.new() for _ in range(number)))
        await self.store.run_all()


async def test_2500_failures_in_a_minute_are_one_message_and_one_that_it_is_over() -> None:
    world = World(OPS, replace(OPS, name="second"), dead_letter_rate={"window": MINUTE})
    await world.begin()
    await world.look()
    for _ in range(6):
        await world.fail(417)
        await world.look()
    assert await world.firing() == ["dead_letter_rate"]
    await world.look(30)
    assert await world.firing() == []
    for channel in ("ops", "second"):
        kinds = [read_message(one.params).kind for one in await world.sent(channel)]
        assert kinds == [Kind.ALERT, Kind.RESOLVED]
    first, last = (read_message(one.params) for one in await world.sent())
    assert 'queue "default": 417 of 417 tasks failed in 1m' in first.text
    assert re.search(r"resolved: over since \S+ \S+ UTC; it was: .* 417 of 417 tasks failed in 1m", last.text)
    assert first.store == "store"


async def test_tasks_that_are_retried_and_fail_again_are_told() -> None:
    """Regression: the number of failed tasks that are stored stays the same."""
    world = World(dead_letter_rate={"window": MINUTE})
    await world.begin()
    await world.look()
    await world.fail(50)
    await world.look(30)
    assert await world.kinds() == [Kind.ALERT, Kind.RESOLVED]
    assert (await world.store.retry(by(state="failed"))).changed == 50
    await world.store.run_all(fail="boom again")
    await world.look()
    assert await world.firing() == ["dead_letter_rate"]


async def test_deleted_tasks_have_ended_too() -> None:
    """Regression: while completed tasks are deleted, ten failures of a thousand tasks were all that had ended."""
    world = World()
    await world.begin()
    await world.look()
    for _ in range(59):
        await world.complete(100)
        await world.fail(1)
        await world.store.prune(by(state="completed"))
        await world.look()
        assert await world.firing() == []
    await world.fail(700)
    await world.store.prune(by(state="failed"))
    await world.look()
    assert await world.firing() == ["dead_letter_rate"]
    assert "759 of 6,659 tasks failed in 10m" in read_message((await world.sent())[0].params).text


async def test_what_failed_shortly_before_the_first_look_counts() -> None:
    """Regression: a deploy that was broken from the start was not told."""
    world = World()
    await world.begin()
    await world.fail(30)
    await world.look()
    assert await world.firing() == ["dead_letter_rate"]
    assert "30 of 30 tasks failed in 10m" in read_message((await world.sent())[0].params).text
    await world.look(70)
    assert await world.kinds() == [Kind.ALERT, Kind.RESOLVED]


async def test_what_failed_long_before_the_first_look_is_no_news() -> None:
    world = World()
    await world.begin()
    await world.fail(500)
    world.store.time.advance(700)
    await world.look(60)
    assert await world.firing() == []


async def test_what_failed_while_no_manager_looked_counts() -> None:
    """Regression: the look after a long pause only began to count."""
    world = World()
    await world.begin()
    await world.look()
    world.store.time.advance(1800)
    await world.fail(30)
    world.store.time.advance(300)
    await world.begin()
    await world.look()
    assert await world.firing() == ["dead_letter_rate"]


async def test_messages_of_a_channel_wait_for_the_earlier_ones() -> None:
    """Regression: a channel that had been down got them in any order."""
    world = World(dead_letter_rate={"window": MINUTE})
    await world.begin()
    await world.look()
    await world.fail(20)
    await world.look(30)
    first, last = await world.sent()
    assert (first.state, last.state, last.reason) == (State.PENDING, State.HELD, "order")
    # A message that the channel refuses does not stop those behind it for ever.
    assert first.expires_at is not None
    assert first.expires_at - first.created_at == 24 * HOUR
    await world.store.cancel(by(id=first.id))
    _, last = await world.sent()
    assert last.state is State.PENDING


async def test_an_alert_that_begins_and_ends_is_in_the_log_of_happenings() -> None:
    world = World(dead_letter_rate={"window": MINUTE})
    await world.begin()
    await world.look()
    await world.fail(20)
    await world.look(30)
    assert world.noted == [
        (
            Happening.ALERT,
            "alert dead_letter_rate",
            'alert dead_letter_rate (medium) is firing: queue "default": 20 of 20 tasks failed in 1m',
            Happened.WARNING,
        ),
        (Happening.ALERT, "alert dead_letter_rate", "alert dead_letter_rate is over after 1m", None),
    ]


async def test_what_goes_on_is_told_in_digests() -> None:
    world = World(dead_letter_rate={"window": MINUTE})
    await world.begin()
    await world.look()
    for _ in range(150):
        await world.fail(10)
        await world.look()
    assert await world.kinds() == [Kind.ALERT, Kind.DIGEST]
    assert "900 more since the last message" in read_message((await world.sent())[1].params).text


async def test_the_next_leader_goes_on_and_sends_nothing_twice() -> None:
    world = World(OPS, LOG, dead_letter_rate={"window": MINUTE})
    await world.begin()
    await world.look()
    await world.fail(20)
    await world.look()
    # It dies right after the act; what failed meanwhile counts.
    await world.begin()
    await world.fail(30)
    await world.look(3)
    assert await world.kinds() == [Kind.ALERT]
    assert world.logged[0].startswith("alert dead_letter_rate (medium) firing")
    assert world.logged[1:] == ["alerts that were firing when this manager began to lead: dead_letter_rate"]
    notes = read_notes((await world.store.alert_board()).notes)
    assert notes.alerts["dead_letter_rate"].happened == 50


async def test_a_leader_that_is_over_writes_nothing() -> None:
    world = World(dead_letter_rate={"window": MINUTE})
    await world.begin()
    await world.look()
    await world.fail(20)
    before = await world.store.alert_board()
    old, term = world.alerter, world.term
    await world.begin()
    try:
        await old.look(term)
    except NotLeader:
        pass
    else:
        raise AssertionError("an old leader was not refused")
    assert await world.store.alert_board() == before
    assert await world.sent() == []


async def test_another_leader_was_faster_and_its_notes_stay() -> None:
    world = World(dead_letter_rate={"window": MINUTE})
    await world.begin()
    await world.look()
    notes = await world.store.alert_board()
    await world.store.note_alerts("{}", [], version=notes.version, term=world.term)
    await world.fail(20)
    board = await world.store.alert_board()
    assert not await world.store.note_alerts('{"late":1}', [], version=notes.version, term=world.term)
    assert await world.store.alert_board() == board


async def test_crashes_of_a_pool_are_counted_over_its_starts() -> None:
    world = World()
    await world.begin(workers(4))
    await world.look()
    for crashes in (1, 2):
        await world.show(workers(4, crashes=crashes))
        await world.look()
    assert await world.firing() == []
    await world.show(workers(4, crashes=3))
    await world.look()
    assert await world.firing() == ["worker_crash_rate"]
    assert "3 crashes in 10m, 43% of its starts" in read_message((await world.sent())[0].params).text


async def test_a_worker_over_its_soft_limit_is_told_if_it_stays() -> None:
    world = World()
    await world.begin()
    full = workers(2, rss=900, soft=800)
    await world.show(full)
    await world.look(12)
    assert await world.firing() == []
    await world.look()
    assert await world.firing() == ["memory_usage"]


async def test_workers_that_are_recycled_are_no_alert() -> None:
    world = World()
    await world.begin()
    for number in range(30):
        full = workers(1, rss=900, soft=800)
        (one,) = full.workers
        await world.show(replace(full, workers=(replace(one, pid=number // 6),)))
        await world.look()
        assert await world.firing() == []


async def test_tasks_that_wait_are_told_and_those_of_a_paused_queue_later() -> None:
    world = World()
    await world.begin()
    await world.store.add(world.store.new(), world.store.new(queue="nightly"))
    await world.store.change_queue("nightly", QueueChange(paused=True, by="ann"))
    await world.look(31)
    assert await world.firing() == ["processing_delay"]
    assert 'queue "default": its oldest due task has waited 5m10s' in read_message((await world.sent())[0].params).text
    await world.store.cancel(by(queue="default"))
    await world.look(360)
    assert await world.firing() == ["oldest_wait"]


async def test_items_of_batches_and_reserved_queues_do_not_wait() -> None:
    world = World()
    await world.begin()
    await world.store.register([GREET])
    await world.store.create_batch(NewBatch(id=world.store.new_id()), [world.store.new()])
    await world.store.put([world.store.new("pitboss.outbox.x", queue="pitboss.outbox.x")])
    facts = await read_alert_facts(world.store)
    assert "pitboss.outbox.x" not in facts.queues
    await world.look(60)
    assert await world.firing() == []


async def test_work_without_a_worker_is_told() -> None:
    world = World()
    await world.begin(Snapshot(target="app.py", pools=(PoolFigures(name="mail", queues=("mail",), wanted=1),)))
    await world.store.add(world.store.new())
    await world.look(7)
    assert await world.firing() == ["no_worker"]
    await world.show(workers())
    await world.look(7)
    assert await world.firing() == []


async def test_a_downtime_does_not_count_as_time_without_a_worker() -> None:
    """Regression: right after a restart it fired, because tasks had waited without a worker before the downtime."""
    world = World()
    away = Snapshot(target="app.py", pools=(PoolFigures(name="mail", queues=("mail",), wanted=1),))
    await world.begin(away)
    await world.store.add(world.store.new())
    await world.look(3)
    world.store.time.advance(100)
    await world.begin(away)
    await world.look(5)
    assert await world.firing() == []
    await world.look(3)
    assert await world.firing() == ["no_worker"]


async def test_dead_workers_are_no_workers() -> None:
    world = World()
    await world.begin(workers(2, state=WorkerState.CRASHED))
    await world.store.add(world.store.new())
    await world.look(7)
    assert await world.firing() == ["no_worker"]


async def test_a_queue_of_remote_workers_has_one_while_something_runs() -> None:
    world = World(oldest_wait=None, processing_delay=None)
    await world.begin()
    remote = HandlerInfo(name="far", queue="far", remote=True)
    await world.store.register([remote])
    await world.store.put([world.store.new("far", queue="far")])
    await world.look(7)
    assert await world.firing() == ["no_worker"]


async def test_members_that_are_sent_away_are_told_and_those_that_rest_or_are_disabled_are_not() -> None:
    world = World()
    await world.begin()
    await world.store.declare_pool("proxies", PoolRules(limits=Limits(min_delay=10 * MINUTE), cooldown=60 * MINUTE))
    await world.store.add_resources("proxies", [NewResource(name=name) for name in "abcd"])
    for _ in range(4):
        await world.use(ResourceOutcome.OK)
    await world.look(40)
    assert await world.firing() == []
    world.store.time.advance(600)
    for _ in range(3):
        await world.use(ResourceOutcome.BLOCKED)
    await world.look(31)
    assert await world.firing() == ["resource_usable"]


async def measured(world: World, ago: int, *, run: float, memory: int, number: int = 100) -> None:
    """That many tasks of a handler ran so long, and needed so much memory."""
    figures = HandlerFigures("default", "greet")
    for _ in range(number):
        figures.run.add(round(run * SECOND))
        figures.memory.add(memory)
    at = bucket(world.store.now - ago, RAW)
    await world.store.add_samples([Sample(at=at, session=1, covered=10, handlers=[figures])])


async def test_a_handler_that_is_much_slower_or_larger_than_usual_is_told() -> None:
    world = World()
    await measured(world, 3 * HOUR, run=1, memory=100 * MB)
    await measured(world, 4 * MINUTE, run=4, memory=500 * MB)
    await world.begin()
    await world.look(12)
    assert await world.firing() == []
    await world.look(2)
    assert await world.firing() == ["large_handler", "slow_handler"]
    told = "".join(read_message(one.params).text for one in await world.sent())
    assert re.search(r'handler "greet": its tasks run for [34]s, usually for \S+', told)
    assert re.search(r'handler "greet": its tasks need \d+ MB of memory, usually \d+ MB', told)
    # After a quarter of an hour without such tasks it is over.
    await world.look(90)
    assert await world.firing() == []


@pytest.mark.parametrize(
    ("usual", "lately"),
    [
        pytest.param({}, {"run": 2.5, "memory": 250 * MB}, id="not so much"),
        pytest.param({"run": 0.01, "memory": MB}, {"run": 0.1, "memory": 10 * MB}, id="small"),
        pytest.param({}, {"run": 4, "memory": 400 * MB, "number": 19}, id="few lately"),
        pytest.param({"number": 49}, {"run": 4, "memory": 400 * MB}, id="few before"),
    ],
)
async def test_a_handler_that_varies_is_not_told(usual: dict[str, Any], lately: dict[str, Any]) -> None:
    world = World()
    await measured(world, 3 * HOUR, **{"run": 1, "memory": 100 * MB, **usual})
    await measured(world, 4 * MINUTE, **lately)
    await world.begin()
    await world.look(30)
    assert await world.firing() == []


async def test_a_schedule_that_does_not_fire_is_told() -> None:
    world = World()
    await world.begin()
    await world.store.put_schedule(ScheduleSpec(name="hourly", handler="greet", every=60 * MINUTE))
    await world.look(360)
    assert await world.firing() == []
    await world.look(10)
    assert await world.firing() == ["late_schedule"]


async def test_a_silenced_rule_is_judged_and_not_told() -> None:
    world = World(dead_letter_rate={"window": MINUTE})
    await world.begin()
    await world.look()
    await world.store.silence_alert("dead_letter_rate", 10 * MINUTE, by="ann")
    await world.fail(20)
    await world.look(3)
    assert await world.firing() == ["dead_letter_rate"]
    assert await world.kinds() == []
    await world.look(100)
    assert await world.kinds() == []


async def test_an_alert_pauses_a_queue_once_and_leaves_it_to_operators() -> None:
    world = World(dead_letter_rate={"window": MINUTE, "action": "pause default"})
    await world.begin()
    await world.look()
    await world.fail(20)
    await world.look()
    (queue,) = [one for one in await world.store.queues() if one.name == "default"]
    assert (queue.paused, queue.paused_by) == (True, "alert dead_letter_rate")
    (entry,) = await world.store.audit_log()
    assert (entry.who, entry.act, entry.target) == ("pitboss", "alert dead_letter_rate", "default")
    await world.look()
    await world.store.change_queue("default", QueueChange(paused=False))
    # The next leader knows that it was done.
    await world.begin()
    await world.look(2)
    (queue,) = [one for one in await world.store.queues() if one.name == "default"]
    assert not queue.paused


async def test_a_leader_that_leads_again_does_not_repeat_what_another_one_did() -> None:
    """Regression: it knew only what it had done itself, and paused the queue again."""
    world = World(dead_letter_rate={"window": MINUTE, "action": "pause default"})
    await world.begin()
    first = world.alerter
    await world.look()
    await world.fail(20)
    await world.look(30)
    await world.store.change_queue("default", QueueChange(paused=False))
    await world.begin()
    await world.fail(20)
    await world.look(2)
    await world.store.change_queue("default", QueueChange(paused=False))
    assert len(await world.store.audit_log()) == 2
    await world.begin()
    world.alerter = first
    await world.look(2)
    assert await world.firing() == ["dead_letter_rate"]
    (queue,) = [one for one in await world.store.queues() if one.name == "default"]
    assert not queue.paused


async def test_an_alert_scales_a_pool_while_it_fires() -> None:
    world = World(processing_delay={"action": "scale default +2"}, oldest_wait=None)
    await world.begin(workers(3))
    await world.store.add(world.store.new())
    await world.look(31)
    # A leader that died in between is followed by one that wants the same.
    await world.begin(workers(3))
    await world.look()
    (wish,) = await world.store.wishes()
    assert (wish.key, wish.value, wish.by) == ("pool/default", '{"size":5}', "alert processing_delay")
    await world.complete(0)
    await world.look(2)
    assert [one.value for one in await world.store.wishes()] == [None]


async def test_what_an_operator_wants_meanwhile_is_left_alone() -> None:
    world = World(processing_delay={"action": "scale default +2"}, oldest_wait=None)
    await world.begin(workers(3))
    await world.store.add(world.store.new())
    await world.look(31)
    await world.store.wish("pool/default", '{"size":9}', by="ann")
    await world.store.run_all()
    await world.look(2)
    assert [one.value for one in await world.store.wishes()] == ['{"size":9}']


PAGE = ChannelSpec(name="page", type="function", handler="page")
DECLARED = HandlerInfo(name="page", queue="oncall", about='{"alert_parameter":"what"}')


async def paged(world: World) -> list[Any]:
    """What the function was told, oldest first."""
    found = (await world.store.find(by(task="page"), oldest_first=True)).tasks
    assert {one.queue for one in found} <= {"oncall"}
    return [msgspec.json.decode(one.params)["what"] for one in found]


async def test_a_function_gets_the_message_as_a_task() -> None:
    """Regression: what fired before an app had declared it was lost."""
    world = World(PAGE, dead_letter_rate={"window": MINUTE})
    await world.begin()
    await world.look()
    await world.fail(20)
    await world.look(2)
    assert world.logged == [
        'no channel was told: alert dead_letter_rate (medium) is firing: queue "default": 20 of 20 tasks failed in 1m',
        'the function "page" is told of alerts once an app declares it with @app.alert_channel',
    ]
    await world.store.register([DECLARED])
    await world.look()
    (first,) = await paged(world)
    assert (first["kind"], first["alerts"][0]["state"]) == ("alert", "firing")
    await world.look(30)
    assert [one["kind"] for one in await paged(world)] == ["alert", "resolved"]


async def test_a_function_that_is_declared_after_an_alert_is_told_of_it() -> None:
    world = World(PAGE, OPS, dead_letter_rate={"window": MINUTE})
    await world.begin()
    await world.look()
    await world.fail(20)
    await world.look(30)
    assert await world.kinds() == [Kind.ALERT, Kind.RESOLVED]
    await world.store.register([DECLARED])
    await world.look(30)
    (told,) = await paged(world)
    assert [(one["rule"], one["state"], one["fired_again"]) for one in told["alerts"]] == [
        ("dead_letter_rate", "resolved", 1)
    ]


async def test_30_healthy_minutes_are_no_alert() -> None:
    """With the rules that are on by default: some failures, a crash, a restart, a rolling replacement, and rests."""
    world = World()
    await world.begin(workers(4, rss=500, soft=800))
    await world.store.put_schedule(ScheduleSpec(name="hourly", handler="greet", every=60 * MINUTE))
    for number in range(180):
        await world.complete(40)
        if number % 20 == 0:
            await world.fail(3)
        states = [WorkerState.IDLE, WorkerState.PROCESSING, WorkerState.DRAINING, WorkerState.STARTING]
        # The second manager begins to count anew.
        crashes = 1 if number <= 100 else number // 150
        await world.show(workers(4, crashes=crashes, rss=500 + number, soft=800, state=states[number % 4]))
        if number == 100:
            await world.begin(workers(4))
        await world.look()
        assert await world.firing() == []
    assert await world.sent() == []


async def test_rules_and_channels_of_settings_that_change_are_followed() -> None:
    world = World(dead_letter_rate={"window": MINUTE})
    await world.begin()
    await world.look()
    await world.fail(20)
    await world.look()
    kept: list[AlertRule] = [one for one in world.spec.rules if one.name != "dead_letter_rate"]
    world.spec = replace(world.spec, rules=tuple(kept))
    await world.look(3)
    notes = read_notes((await world.store.alert_board()).notes)
    assert "dead_letter_rate" not in notes.alerts
    assert await world.kinds() == [Kind.ALERT]
