"""Takes messages back from a dead-letter queue: tasks of ours are retried, foreign messages become new tasks."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec

from pitboss.engines.broker_protocol import Broker, BrokerError, Consuming, Message
from pitboss.engines.protocol import Store
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.filter import by
from pitboss.model.ids import TaskId
from pitboss.model.message import dead_task_id, without_labels
from pitboss.model.source import SourceSpec
from pitboss.model.states import State
from pitboss.operate.task_types import TaskTypes
from pitboss.sources.intake import Intake

_RETRIED = (State.FAILED, State.CANCELLED)


class TakenBack(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the messages that waited in the dead-letter queue when it began.

    `retried` tasks of ours run again; `created` tasks are new ones, of foreign messages and of tasks that were deleted;
    `known`: the task waits, runs or is done already, so the message was only removed. `left` stay in the queue, with
    the `reasons` of the first few.
    """

    matched: int = 0
    retried: int = 0
    created: int = 0
    known: int = 0
    left: int = 0
    reasons: tuple[str, ...] = ()


class Revived(StrEnum):
    """What became of a failed task whose dead letter came back. `known`: it waits, runs or is done already. `refused`:
    another unfinished task has its unique key."""

    RETRIED = "retried"
    KNOWN = "known"
    REFUSED = "refused"


async def run_again(store: Store, handler: str, task: TaskId) -> Revived | None:
    """Retry a task that has failed; None if the handler has no such task."""
    found = (await store.get([task]))[0]
    if found is None or found.handler != handler:
        return None
    if found.state not in _RETRIED:
        return Revived.KNOWN
    changed = await store.retry(by(id=task))
    if changed.refused:
        return Revived.REFUSED
    return Revived.RETRIED if changed.changed else Revived.KNOWN


async def waiting_dead_letters(broker: Broker, spec: SourceSpec) -> int:
    """How many messages the dead-letter queue has."""
    connection = await broker.consuming(_ignore)
    try:
        return await connection.queue(spec.dead_letter_queue)
    finally:
        await connection.close()


async def take_back(
    broker: Broker,
    spec: SourceSpec,
    store: Store,
    make_id: Callable[[], TaskId],
    *,
    progress: Callable[[TakenBack], None] = lambda _report: None,
) -> TakenBack:
    """Take back what waits now; what fails again meanwhile stays. A message is removed once its task is stored."""
    types = TaskTypes(store, store.clock.now)
    kind = (await types.all()).get(spec.handler)
    if kind is None:
        raise NotFound(
            f'no app has registered the handler "{spec.handler}"',
            why=f'the source "{spec.name}" gives its messages to it',
            fix="start the app that has it, then try again",
        )
    connection = await broker.consuming(_ignore)
    try:
        taking = _Taking(connection, spec, store, Intake(spec, kind, make_id))
        for _ in range(taking.start(await connection.queue(spec.dead_letter_queue))):
            if not await taking.next():
                break
            progress(taking.report)
        return taking.report
    finally:
        # What was not acknowledged goes back to its place.
        await connection.close()


class _Taking:
    def __init__(self, connection: Consuming, spec: SourceSpec, store: Store, intake: Intake) -> None:
        self._connection, self._spec, self._store, self._intake = connection, spec, store, intake
        self.report = TakenBack()

    def start(self, matched: int) -> int:
        self._count(matched=matched)
        return matched

    async def next(self) -> bool:
        """One message; False if the queue is empty."""
        message = await self._connection.get(self._spec.dead_letter_queue)
        if message is None:
            return False
        try:
            done = await self._take(message)
        except InvalidInput as error:
            self._leave(f"{error.what}: {error.why}" if error.why else error.what)
        else:
            if done is not None:
                self._connection.ack(message.tag, multiple=False)
                self._count(**{done: 1})
        return True

    async def _take(self, message: Message) -> str | None:
        """What became of it; None if it stays."""
        known = dead_task_id(message.properties)
        revived = None if known is None else await run_again(self._store, self._spec.handler, known)
        if revived is None:
            plain = msgspec.structs.replace(message, properties=without_labels(message.properties))
            # Its own key would be taken by the task that it was, and the message would count as a repetition.
            await self._store.put([self._intake.task(plain, None)])
            return "created"
        if revived is Revived.REFUSED:
            self._leave(f"task {known}: another unfinished task has its unique key")
            return None
        return revived.value

    def _leave(self, reason: str) -> None:
        shown = self.report.reasons if len(self.report.reasons) >= _SHOWN else (*self.report.reasons, reason)
        self.report = msgspec.structs.replace(self.report, left=self.report.left + 1, reasons=shown)

    def _count(self, **more: int) -> None:
        added: dict[str, Any] = {key: getattr(self.report, key) + number for key, number in more.items()}
        self.report = msgspec.structs.replace(self.report, **added)


_SHOWN = 5


def _ignore(_error: BrokerError) -> None:
    """The next call raises it."""
