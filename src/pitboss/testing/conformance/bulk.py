"""Many at once: the size of a list changes speed, never meaning."""

import msgspec
import pytest

from pitboss.model.errors import QueueFull
from pitboss.model.filter import EVERYTHING, by
from pitboss.model.outcome import Completed, decide
from pitboss.model.session import Slot
from pitboss.model.settlement import APPLIED, Settlement
from pitboss.model.states import State
from pitboss.model.task import NewTask, Task, Unique
from pitboss.testing.conformance.bench import STEADY, Bench

MANY = 10_000


class Bulk:
    async def test_ten_thousand_tasks_in_one_call(self, bench: Bench) -> None:
        bench.watching = False
        tasks = [bench.new(priority=number % 3, params=f'{{"n":{number}}}') for number in range(MANY)]
        placed = await bench.put(*tasks)
        assert [one.id for one in placed] == [task.id for task in tasks]
        assert all(one.created and one.state is State.PENDING for one in placed)
        assert (await bench.queue()).counts == {State.PENDING: MANY}
        assert [one.created for one in await bench.put(*tasks[:3], *tasks[-3:])] == [False] * 6

    async def test_of_a_large_call_each_id_and_key_is_one_task(self, bench: Bench) -> None:
        bench.watching = False
        there = await bench.add()
        tasks = [bench.new() for _ in range(1_700)]
        tasks[1_200], tasks[1_300] = tasks[5], msgspec.structs.replace(tasks[1_300], id=there.id)
        for place in (7, 800, 1_500):
            tasks[place] = msgspec.structs.replace(tasks[place], unique=Unique("one"))
        placed = await bench.put(*tasks)
        assert [place for place, one in enumerate(placed) if not one.created] == [800, 1_200, 1_300, 1_500]
        assert [placed[place].id for place in (800, 1_200, 1_300, 1_500)] == [
            tasks[7].id,
            tasks[5].id,
            there.id,
            tasks[7].id,
        ]
        assert (await bench.queue()).counts == {State.PENDING: 1_697}

    async def test_of_a_large_call_to_a_full_queue_nothing_is_stored(self, bench: Bench) -> None:
        bench.watching = False
        await bench.change("small", capacity=1_600)
        tasks = [bench.new(queue="small" if number > 600 else "wide") for number in range(2_400)]
        with pytest.raises(QueueFull):
            await bench.put(*tasks)
        assert (await bench.store.count(EVERYTHING)).number == 0
        assert all(one.created for one in await bench.put(*tasks[:2_000]))

    async def test_two_thousand_claims_and_settlements_in_one_call(self, bench: Bench) -> None:
        bench.watching = False
        tasks = [bench.new() for _ in range(2_000)]
        await bench.put(*tasks)
        claims = (await bench.ask(Slot(free=2_000))).claims
        assert [claim.id for claim in claims] == [task.id for task in tasks]
        answers = await bench.settle(
            *(
                Settlement(id=claim.id, token=claim.token, transition=decide(claim, Completed(), STEADY, 0, 0.5))
                for claim in claims
            )
        )
        assert answers == [APPLIED] * 2_000
        assert (await bench.queue()).counts == {State.COMPLETED: 2_000}

    async def test_one_call_means_what_many_calls_mean(self, bench: Bench) -> None:
        variety = [dict(option) for option in _VARIETY]
        together = [bench.new(queue="x", **_with_key(option, "x")) for option in variety]
        apart = [bench.new(queue="y", **_with_key(option, "y")) for option in variety]
        placed = await bench.put(*together)
        singly = [(await bench.put(task))[0] for task in apart]
        assert [(one.created, one.state, one.reason) for one in placed] == [
            (one.created, one.state, one.reason) for one in singly
        ]
        assert await _shape(bench, together) == await _shape(bench, apart)

    @pytest.mark.parametrize("size", [1, 3, 100])
    async def test_claims_of_any_size_come_in_one_order(self, bench: Bench, size: int) -> None:
        tasks = [await bench.add(priority=number % 4) for number in range(12)]
        wanted = [task.id for task in sorted(tasks, key=lambda task: (task.priority, task.id))]
        claims = [claim for _ in range(12) for claim in await bench.claim(size)]
        assert [claim.id for claim in claims] == wanted

    @pytest.mark.parametrize("limit", [1, 4, 1000])
    async def test_control_in_steps_of_any_size_comes_to_the_same(self, bench: Bench, limit: int) -> None:
        await bench.put(*(bench.new() for _ in range(9)))
        await bench.claim(2)
        totals = [0, 0]
        while True:
            changed = await bench.cancel(by(queue="default"), limit=limit)
            assert changed.changed + changed.asked <= limit
            totals = [totals[0] + changed.changed, totals[1] + changed.asked]
            if not changed.more:
                break
        assert totals == [7, 2]


_VARIETY: tuple[dict[str, object], ...] = (
    {},
    {"unique": "k"},
    {"unique": "k"},
    {"delay": 5_000_000},
    {"handler": "stranger", "delay": 1},
    {"priority": 9, "tags": ("a",)},
    {"unique": "k", "priority": 3},
)


def _with_key(option: dict[str, object], queue: str) -> dict[str, object]:
    return option | {"unique": Unique(f"{queue}.{option['unique']}")} if "unique" in option else option


async def _shape(bench: Bench, tasks: list[NewTask]) -> list[Task | None]:
    """The tasks without the fields that must differ."""
    found = await bench.store.get([task.id for task in tasks])
    return [task and msgspec.structs.replace(task, id="", queue="", unique_key=None) for task in found]
