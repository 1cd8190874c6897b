"""The hook process: gets facts from its manager and calls the app's hooks with them."""

import asyncio
import os
import socket
import sys
from typing import Any

import msgspec
import uvloop

from pitboss.model.duration import SECOND, Span
from pitboss.model.facts import AnyFact
from pitboss.model.log_settings import LogSettings
from pitboss.telemetry.logs.worker import set_up_worker
from pitboss.worker.channel import (
    AnswerMessage,
    Channel,
    DrainMessage,
    FactMessage,
    FromHooks,
    HandledMessage,
    HeartbeatMessage,
    ReadyMessage,
    ToHooks,
    hooks_codec,
)
from pitboss.worker.child import die_with_parent, leave, load_app_or_leave
from pitboss.worker.hook_runner import HookRunner
from pitboss.worker.store_proxy import StoreProxy

HEARTBEAT_SECONDS = 1.0
_GRACE_SECONDS = 1.0


class HooksSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager passes to its hook process at the start. `limit` is how long one hook may take."""

    target: str
    manager: int
    concurrency: int = 8
    limit: Span = 30 * SECOND
    logs: LogSettings | None = None


class HookProcess:
    """The facts that are being handled in this process."""

    def __init__(self, spec: HooksSpec, app: Any) -> None:
        self._app = app
        self._runner = HookRunner(
            app.hooks,
            concurrency=spec.concurrency,
            limit=spec.limit / SECOND,
            grace=_GRACE_SECONDS,
            on_stuck=self._send_heartbeat,
        )
        self._running: set[asyncio.Task[None]] = set()
        self._handled = 0
        self._draining = False
        self._over = asyncio.Event()
        self._channel: Channel[ToHooks, FromHooks]
        self._store: StoreProxy

    async def run(self, end: socket.socket) -> None:
        """Serve until the manager is gone, or the process is drained."""
        self._channel = await Channel.over(end, hooks_codec(), self._hear, self._over.set)
        self._store = StoreProxy(self._channel.say)
        self._app.use(self._store)
        self._channel.say(ReadyMessage(os.getpid()))
        beating = asyncio.create_task(self._beat())
        await self._over.wait()
        beating.cancel()
        self._channel.close()

    def _hear(self, message: ToHooks) -> None:
        match message:
            case FactMessage(fact):
                work = asyncio.create_task(self._handle(fact))
                self._running.add(work)
                work.add_done_callback(self._ended)
            case DrainMessage():
                self._draining = True
                self._end_if_idle()
            case AnswerMessage():
                self._store.hear(message)

    async def _handle(self, fact: AnyFact) -> None:
        failed = 1
        try:
            failed = await self._runner.run(fact)
        finally:
            self._handled += 1
            self._channel.say(HandledMessage(failed))

    def _ended(self, work: "asyncio.Task[None]") -> None:
        self._running.discard(work)
        if self._draining:
            self._end_if_idle()

    def _end_if_idle(self) -> None:
        if not self._running:
            self._over.set()

    def _send_heartbeat(self) -> None:
        self._channel.say(HeartbeatMessage(len(self._running), self._runner.stuck, self._handled))

    async def _beat(self) -> None:
        while True:
            self._send_heartbeat()
            await asyncio.sleep(HEARTBEAT_SECONDS)


def main() -> None:
    """`python -m pitboss.worker.hooks_main SPEC FD`, started by a manager."""
    spec = msgspec.json.decode(sys.argv[1], type=HooksSpec)
    end = socket.socket(fileno=int(sys.argv[2]))
    die_with_parent(spec.manager, end)
    app = load_app_or_leave(spec.target, end)
    if spec.logs is not None:
        hidden = app.redactor.hidden_bytes
        set_up_worker(spec.logs, pool="hooks", worker="hooks", current=lambda: None, hidden=hidden)
    # Every hook switches between threads twice; a short switch interval makes that a quarter faster.
    sys.setswitchinterval(0.0005)
    uvloop.run(_serve(spec, app, end))
    leave(0)


async def _serve(spec: HooksSpec, app: Any, end: socket.socket) -> None:
    await HookProcess(spec, app).run(end)


if __name__ == "__main__":
    main()
