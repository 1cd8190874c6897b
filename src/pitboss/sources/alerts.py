"""Sends the messages of alerts: the tasks of the reserved queue, each through its channel, until it is taken."""

import asyncio
from collections.abc import Callable

from pitboss.dispatch.dispatcher import Dispatcher
from pitboss.engines.protocol import Clock
from pitboss.model.alert_message import AlertMessage, ChannelSpec, Kind, alert_handler, read_message
from pitboss.model.canonical import to_json
from pitboss.model.outcome import Completed, Retry
from pitboss.model.task import Claim, TaskError
from pitboss.telemetry.channels import SendError, send

# How many messages of one channel are on their way at a time.
_AT_ONCE = 4
# What a manager tells past the store: how often it is tried, and the pauses between, in seconds.
_TRIES = 6
_PAUSES = (1.0, 5.0, 15.0, 30.0, 60.0)
# More than these at a time are not kept: the store is away, and each says the same.
_MOST_WAITING = 20
Tell = Callable[[str], None]


class AlertWorker:
    """Sends the tasks of one channel: a worker of the dispatcher, without a process. `tell` gets one sentence when the
    channel takes nothing, and `well` one when it does again."""

    capacity = _AT_ONCE
    silence = 0.0
    open = True

    def __init__(self, channel: ChannelSpec, clock: Clock, *, tell: Tell, well: Tell) -> None:
        self.id = self.name = self.handler = alert_handler(channel.name)
        # A queue of its own for each channel: one that hangs must not keep the others waiting.
        self.queue = self.handler
        self._channel, self._clock, self._tell, self._well = channel, clock, tell, well
        self.dispatcher: Dispatcher | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        self._direct: set[asyncio.Task[None]] = set()
        self._failed = ""

    def start(self, claim: Claim) -> None:
        work = self._running[claim.id] = asyncio.create_task(self._run(claim))
        work.add_done_callback(lambda _: self._running.pop(claim.id, None))

    def on_change(self, told: Callable[[], None]) -> None:
        """It can always try."""

    def stop(self, claim: Claim) -> None:
        """A message ends soon by itself: each has a time limit."""

    def recall(self) -> None:
        """Nothing waits in here."""

    def send_now(self, message: AlertMessage) -> None:
        """Send what the store cannot keep now. It is tried some minutes."""
        if len(self._direct) < _MOST_WAITING:
            work = asyncio.create_task(self._try(message))
            self._direct.add(work)
            work.add_done_callback(self._direct.discard)

    async def _try(self, message: AlertMessage) -> None:
        for pause in _PAUSES[: _TRIES - 1]:
            if not await self._send(message):
                return
            await asyncio.sleep(pause)
        await self._send(message)

    async def _run(self, claim: Claim) -> None:
        message = read_message(claim.params)
        test = message.kind is Kind.TEST
        why = await self._send(message, test=test)
        if test:
            # Tried once: the person who asked for it reads the result.
            outcome: Completed | Retry = Completed(result=to_json({"why": why}))
        elif why:
            outcome = Retry(error=TaskError(category="channel", message=why, type="SendError"))
        else:
            outcome = Completed()
        if self.dispatcher is not None:
            self.dispatcher.finish(claim, outcome, worker=self.name)

    async def _send(self, message: AlertMessage, *, test: bool = False) -> str:
        """Why it was not sent; empty if it was."""
        try:
            await send(self._channel, message, self._clock.wall())
        except SendError as error:
            why = str(error)
        except Exception as error:
            # A fault here must not end the session. Its text may have a secret in it.
            why = f"a fault of Pitboss itself ({type(error).__name__})"
        else:
            self._note("")
            return ""
        if not test:
            self._note(why)
        return why

    def _note(self, why: str) -> None:
        before, self._failed = self._failed, why
        if why and not before:
            self._tell(f"the alert channel {self._channel.name} takes no messages: {why}; it is tried again")
        elif before and not why:
            self._well(f"the alert channel {self._channel.name} takes messages again")
