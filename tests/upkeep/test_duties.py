"""Duties in virtual time: each runs at its own pace, and none stops the others."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from pitboss.model.errors import NotLeader, StoreUnavailable
from pitboss.testing.virtual import run_virtual
from pitboss.upkeep.duties import LOOK_SECONDS, Duty, Pause, Term, run_duties

Work = Callable[[int], Awaitable[object]]


class Recorder:
    """Notes when it was called, and with which term; `errors` are raised in turn."""

    def __init__(self, *errors: Exception | None, lasts: float = 0, answer: object = None) -> None:
        self.at: list[float] = []
        self.terms: list[int] = []
        self._errors, self._lasts, self._answer = list(errors), lasts, answer

    async def __call__(self, term: int) -> object:
        self.at.append(asyncio.get_running_loop().time())
        self.terms.append(term)
        error = self._errors.pop(0) if self._errors else None
        if error is not None:
            raise error
        await asyncio.sleep(self._lasts)
        return self._answer


def run(*duties: Duty, seconds: float, term: Term = lambda: 7) -> list[str]:
    """What was reported in that time."""
    said: list[str] = []

    async def main() -> None:
        working = asyncio.create_task(run_duties(duties, term=term, warn=said.append))
        await asyncio.sleep(seconds)
        assert not working.done()
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working

    run_virtual(main(), limit="1h")
    return said


def test_each_runs_once_per_period_and_a_slow_one_delays_no_other() -> None:
    slow, quick = Recorder(lasts=100), Recorder()
    assert run(Duty("slow", 1.0, slow), Duty("quick", 2.0, quick), seconds=9) == []
    assert slow.at == [1]
    assert quick.at == [2, 4, 6, 8]


def test_only_the_leader_has_a_term() -> None:
    led, free = Recorder(), Recorder()
    terms = iter([None, None, 3, 3, 4, *[None] * 100])
    run(Duty("led", 1.0, led), Duty("free", 1.0, free, led=False), seconds=8.5, term=lambda: next(terms))
    assert (led.terms, led.at) == ([3, 3, 4], [3, 4, 5])
    assert free.terms == [0] * 8


def test_a_new_leader_begins_soon_if_it_is_time() -> None:
    work, leads = Recorder(), [False]

    async def main() -> None:
        duty = Duty("rare", 60.0, work)
        working = asyncio.create_task(run_duties([duty], term=lambda: 1 if leads[0] else None, warn=print))
        await asyncio.sleep(200)
        leads[0] = True
        await asyncio.sleep(LOOK_SECONDS)
        assert len(work.at) == 1
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working

    run_virtual(main(), limit="1h")


@pytest.mark.parametrize("error", [StoreUnavailable("no answer"), NotLeader(7)])
def test_an_expected_error_ends_the_round_quietly(error: Exception) -> None:
    work = Recorder(error, None, error)
    assert run(Duty("work", 1.0, work), seconds=4.5) == []
    assert work.at == [1, 2, 3, 4]


def test_an_unexpected_error_is_reported_once_and_stops_nothing() -> None:
    broken, sound = Recorder(*[ValueError("odd")] * 3, KeyError("other"), None), Recorder()
    said = run(Duty("broken", 1.0, broken), Duty("sound", 1.0, sound), seconds=6.5)
    assert len(broken.at) == len(sound.at) == 6
    assert len(said) == 2
    assert '"broken" (ValueError: odd)' in said[0]
    assert "KeyError" in said[1]


def test_a_duty_may_ask_for_a_shorter_pause_but_not_for_a_longer_one() -> None:
    soon, late = Recorder(answer=Pause(0.25)), Recorder(answer=Pause(5.0))
    run(Duty("soon", 1.0, soon), Duty("late", 1.0, late), seconds=2.9)
    assert soon.at == pytest.approx([1 + n / 4 for n in range(8)], abs=1e-4)
    assert late.at == [1, 2]
