"""The loop that runs duties: each at its own pace, so that a slow one does not delay the others."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from pitboss.model.errors import NotLeader, StoreUnavailable

# A manager that begins to lead notices it within this time.
LOOK_SECONDS = 1.0

Term = Callable[[], int | None]


class Pause(NamedTuple):
    """The answer of a duty that wants to run again before its period is over."""

    seconds: float


class Duty(NamedTuple):
    """Work on the store, once per period. `led`: only the leader does it, and `work` gets the term; else it gets 0."""

    name: str
    seconds: float
    work: Callable[[int], Awaitable[object]]
    led: bool = True


async def run_duties(duties: Sequence[Duty], *, term: Term, warn: Callable[[str], None]) -> None:
    """Run them all until cancelled."""
    async with asyncio.TaskGroup() as group:
        for duty in duties:
            group.create_task(repeat(duty, term=term, warn=warn))


async def repeat(duty: Duty, *, term: Term, warn: Callable[[str], None]) -> None:
    """Run one duty until cancelled. An error ends only the round; one that is not expected is reported once."""
    pause, fault = duty.seconds, ""
    while True:
        await asyncio.sleep(pause)
        leading = term() if duty.led else 0
        if leading is None:
            pause = min(duty.seconds, LOOK_SECONDS)
            continue
        pause = duty.seconds
        try:
            answer = await duty.work(leading)
            if isinstance(answer, Pause):
                pause = min(pause, answer.seconds)
        except (StoreUnavailable, NotLeader):
            continue
        except Exception as error:
            if fault != (fault := f"{type(error).__name__}: {error}"):
                warn(f'a fault of Pitboss itself in the duty "{duty.name}" ({fault}); it continues')
