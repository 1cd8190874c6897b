"""Questions that go by the group: who shares one, and who suffers from whom."""

import asyncio
from collections.abc import Sequence

import pytest

from pitboss.engines.postgres.gathered import Gathered
from pitboss.model.errors import InvalidInput


class Counter:
    """Doubles numbers, by the group; waits until it may. A 13 cannot be asked."""

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
    gathered = Gathered(counter)
    asking: list[asyncio.Task[int]] = []
    for together in (numbers[:1], numbers[1:2], numbers[2:]):
        asking += [asyncio.create_task(gathered.ask(number)) for number in together]
        await asyncio.sleep(0.001)
    counter.free.set()
    return list(await asyncio.gather(*asking, return_exceptions=True))


async def test_what_is_asked_meanwhile_goes_together() -> None:
    counter = Counter()
    assert await asked(counter, 1, 2, 3, 4, 5) == [2, 4, 6, 8, 10]
    assert counter.groups == [[1], [2], [3, 4, 5]]


async def test_one_that_cannot_be_asked_is_told_alone() -> None:
    answers = await asked(Counter(), 1, 2, 3, 13, 5)
    assert [one for one in answers if isinstance(one, int)] == [2, 4, 6, 10]
    assert isinstance(answers[3], InvalidInput)


async def test_a_failure_is_told_to_all_of_its_group_and_the_next_one_goes_on() -> None:
    counter = Counter()
    gathered = Gathered(counter)
    counter.free.set()
    failed = await asyncio.gather(*(gathered.ask(number) for number in (3, 0, 4)), return_exceptions=True)
    assert [type(one) for one in failed] == [ZeroDivisionError] * 3
    assert await gathered.ask(4) == 8


async def test_who_stops_waiting_disturbs_nobody() -> None:
    counter = Counter()
    gathered = Gathered(counter)
    first, second, third = (asyncio.create_task(gathered.ask(number)) for number in (1, 2, 3))
    await asyncio.sleep(0.001)
    first.cancel()
    counter.free.set()
    assert [await second, await third] == [4, 6]
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_who_asks_again_at_once_is_served() -> None:
    """Both groups end in one breath; the one who was answered first asks before anything else happens."""
    gates: list[asyncio.Future[None]] = []

    async def answered(group: Sequence[int]) -> list[int]:
        gates.append(asyncio.get_running_loop().create_future())
        await gates[-1]
        return [2 * number for number in group]

    gathered = Gathered(answered)

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
