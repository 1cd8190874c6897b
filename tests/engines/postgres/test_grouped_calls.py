"""Calls that go in groups: which share one, and which fail together."""

import asyncio
from collections.abc import Sequence

import pytest

from pitboss.engines.postgres.grouped_calls import GroupedCalls
from pitboss.model.errors import InvalidInput


class Counter:
    """Doubles numbers, in groups; waits until it may. A 13 is refused."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.free = asyncio.Event()

    async def __call__(self, group: Sequence[int]) -> list[int]:
        self.groups.append(list(group))
        await self.free.wait()
        if 13 in group:
            raise InvalidInput("13", why="it brings bad luck", fix="take another one")
        if 0 in group:
            raise ZeroDivisionError
        return [2 * number for number in group]


async def asked(counter: Counter, *numbers: int) -> list[object]:
    gathered = GroupedCalls(counter)
    asking: list[asyncio.Task[int]] = []
    for together in (numbers[:1], numbers[1:2], numbers[2:]):
        asking += [asyncio.create_task(gathered.ask(number)) for number in together]
        await asyncio.sleep(0.001)
    counter.free.set()
    return list(await asyncio.gather(*asking, return_exceptions=True))


async def test_calls_that_come_meanwhile_go_together() -> None:
    counter = Counter()
    assert await asked(counter, 1, 2, 3, 4, 5) == [2, 4, 6, 8, 10]
    assert counter.groups == [[1], [2], [3, 4, 5]]


async def test_only_the_call_that_is_refused_fails() -> None:
    answers = await asked(Counter(), 1, 2, 3, 13, 5)
    assert [one for one in answers if isinstance(one, int)] == [2, 4, 6, 10]
    assert isinstance(answers[3], InvalidInput)


async def test_a_failure_ends_all_calls_of_its_group_and_the_next_group_goes_on() -> None:
    counter = Counter()
    gathered = GroupedCalls(counter)
    counter.free.set()
    failed = await asyncio.gather(*(gathered.ask(number) for number in (3, 0, 4)), return_exceptions=True)
    assert [type(one) for one in failed] == [ZeroDivisionError] * 3
    assert await gathered.ask(4) == 8


async def test_a_call_that_is_cancelled_does_not_disturb_others() -> None:
    counter = Counter()
    gathered = GroupedCalls(counter)
    first, second, third = (asyncio.create_task(gathered.ask(number)) for number in (1, 2, 3))
    await asyncio.sleep(0.001)
    first.cancel()
    counter.free.set()
    assert [await second, await third] == [4, 6]
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_call_that_comes_right_after_an_answer_is_served() -> None:
    """Both groups end in the same step of the loop; the caller answered first asks before anything else happens."""
    gates: list[asyncio.Future[None]] = []

    async def answered(group: Sequence[int]) -> list[int]:
        gates.append(asyncio.get_running_loop().create_future())
        await gates[-1]
        return [2 * number for number in group]

    gathered = GroupedCalls(answered)

    async def twice() -> int:
        return await gathered.ask(await gathered.ask(1))

    first = asyncio.create_task(twice())
    await asyncio.sleep(0.001)
    second = asyncio.create_task(gathered.ask(3))
    await asyncio.sleep(0.001)
    for gate in gates:
        gate.set_result(None)
    assert await second == 6
    await asyncio.sleep(0.01)
    assert len(gates) == 3
    gates[2].set_result(None)
    assert await first == 4
