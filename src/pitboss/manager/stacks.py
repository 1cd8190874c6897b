"""Finds out where running tasks are when operators ask: it asks the worker, or the worker's interpreter if the worker
does not answer because its event loop is blocked."""

import asyncio
import re
from collections.abc import Callable, Iterable

from pitboss.engines.protocol import Clock
from pitboss.manager.worker_process import Key, WorkerProcess
from pitboss.model.desired_state import DesiredState
from pitboss.model.stack import StackWish, TaskStack
from pitboss.model.task import Claim
from pitboss.worker.channel import StackMessage, StackOfMessage

# A worker whose loop runs answers within this time.
_LOOP_SECONDS = 0.5
_SIGNAL_SECONDS = 0.3
_FRAME = re.compile(r'^\s*File "(.*)", line (\d+) in (.*)$')
_BLOCKED = "its event loop is blocked: these are all threads of its worker, one after the other"


class Stacks:
    """`workers` are all live ones, `claims` what this manager runs."""

    def __init__(
        self,
        workers: Callable[[], Iterable[WorkerProcess]],
        claims: Callable[[], Iterable[Claim]],
        clock: Clock,
    ) -> None:
        self._workers, self._claims, self._clock = workers, claims, clock
        self._found: dict[str, TaskStack] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._heard: dict[Key, asyncio.Future[StackOfMessage]] = {}

    @property
    def found(self) -> tuple[TaskStack, ...]:
        """The answers to what is wanted now, for the snapshot."""
        return tuple(self._found.values())

    def follow(self, state: DesiredState, sessions: Iterable[int]) -> None:
        """Answer the wishes that have no answer yet, and forget answers that are not wanted any more."""
        wishes = {wish.ask: wish for wish in state.stacks(sessions)}
        self._found = {ask: one for ask, one in self._found.items() if ask in wishes}
        for ask in wishes.keys() - self._found.keys() - self._asking.keys():
            work = self._asking[ask] = asyncio.create_task(self._answer(wishes[ask]), name=ask)
            work.add_done_callback(lambda work: self._asking.pop(work.get_name(), None))

    def hear(self, message: StackOfMessage) -> None:
        waiting = self._heard.pop((message.id, message.claim), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    async def _answer(self, wish: StackWish) -> None:
        running = [(one, key) for one in self._workers() for key in list(one.claims) if key[0] == wish.task]
        if running:
            self._found[wish.ask] = await self._of(wish, *running[0])
        elif any(claim.id == wish.task for claim in self._claims()):
            note = "it waits in the manager for a free slot of a worker"
            self._found[wish.ask] = TaskStack(task=wish.task, ask=wish.ask, at=self._clock.now(), note=note)

    async def _of(self, wish: StackWish, worker: WorkerProcess, key: Key) -> TaskStack:
        # Two operators may ask for the same task: one answer serves both.
        waiting = self._heard.setdefault(key, asyncio.get_running_loop().create_future())
        worker.say(StackMessage(*key))
        try:
            async with asyncio.timeout(_LOOP_SECONDS):
                answer = await asyncio.shield(waiting)
            lines, note = list(answer.lines), answer.note
        except TimeoutError:
            self._heard.pop(key, None)
            worker.ask_for_stack()
            await asyncio.sleep(_SIGNAL_SECONDS)
            lines, note = frames_of(worker.read_stack()), _BLOCKED
        return TaskStack(
            task=wish.task, ask=wish.ask, worker=worker.name, at=self._clock.now(), lines=tuple(lines), note=note
        )


def frames_of(text: str) -> list[str]:
    """The frames in what `faulthandler` wrote, each thread from the outside in."""
    threads: list[list[str]] = [[]]
    for line in text.splitlines():
        match = _FRAME.match(line)
        if match is not None:
            threads[-1].insert(0, f"{match[1]}:{match[2]} in {match[3]}")
        elif line.startswith(("Thread", "Current thread")):
            threads.append([])
    return [line for thread in threads for line in thread]
