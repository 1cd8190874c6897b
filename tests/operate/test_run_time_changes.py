"""What operators changed is listed with the command that withdraws it. The other kinds of changes are in tests/cli."""

from pitboss.client.schedules import ScheduleClient
from pitboss.model.declared import Declared
from pitboss.model.schedule import ScheduleSpec
from pitboss.operate.run_time_changes import RunTimeChange, read_run_time_changes
from tests.operate.bench import GREET, Bench

SPECS = tuple(
    ScheduleSpec(name=name, handler="greet", cron="0 3 * * *", priority=2, params='{"name":"you"}')
    for name in ("asleep", "changed", "untouched")
)


async def test_paused_and_changed_schedules_are_listed_with_the_command_that_withdraws_them(store: Bench) -> None:
    """They were left out: a schedule that an operator had paused looked like one that no operator had touched."""
    await store.register([GREET])
    await store.declare(Declared(app="shop", schedules=SPECS))
    client = ScheduleClient(store, store.new_id)
    await client.add("own", "greet", every="10m", params={"name": "you"})
    assert await read_run_time_changes(store, store.now, {}) == []
    await client.pause("asleep", by="ann")
    await client.change("changed", cron="0 4 * * *", priority=5, by="ann")
    assert await read_run_time_changes(store, store.now, {}) == [
        RunTimeChange(
            key="schedules.asleep.paused", value="true", declared="false", withdraw="pitboss schedules resume asleep"
        ),
        RunTimeChange(
            key="schedules.changed.cron",
            value="0 4 * * *",
            declared="0 3 * * *",
            withdraw="pitboss schedules reset changed",
        ),
        RunTimeChange(
            key="schedules.changed.priority", value="5", declared="2", withdraw="pitboss schedules reset changed"
        ),
    ]
    await client.resume("asleep")
    await client.reset("changed")
    assert await read_run_time_changes(store, store.now, {}) == []
