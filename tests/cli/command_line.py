"""What the tests of the command line share: commands in this process, real processes, and a store to fill."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from typer.testing import CliRunner

from pitboss import wiring
from pitboss.cli.main import app
from pitboss.engines.protocol import Store
from pitboss.model.ids import IdMaker
from pitboss.model.outcome import Completed, Failed, decide
from pitboss.model.policy import Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.task import NewTask, TaskError

T = TypeVar("T")
PITBOSS = Path(sys.executable).with_name("pitboss")
GREET = HandlerInfo(
    name="greet",
    schema='{"type":"object","properties":{"name":{"type":"string"}},"required":["name"],"additionalProperties":false}',
)
_ids = IdMaker(wiring.SystemClock().now, wiring.randbits())


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return msgspec.json.decode(self.out)


def pitboss(*args: str, stdin: str | None = None, env: dict[str, str] | None = None) -> Answer:
    """Run a command here. It cannot ask questions: stdin is not a terminal."""
    result = CliRunner().invoke(app, list(args), input=stdin, env=env)
    return Answer(result.exit_code, result.stdout, result.stderr)


def new(handler: str = "greet", params: str = '{"name":"you"}', **options: Any) -> NewTask:
    return NewTask(**{"id": _ids(), "handler": handler, "params": params} | options)


def with_store(work: Callable[[Store], Awaitable[T]], url: str = "sqlite:///pitboss.db") -> T:
    """Do something to the store of the working folder."""

    async def do() -> T:
        engine = wiring.make_engine(url)
        await engine.open()
        try:
            return await work(engine)
        finally:
            await engine.close()

    return asyncio.run(do())


def put(*tasks: NewTask, handlers: Sequence[HandlerInfo] = (GREET,)) -> list[str]:
    async def work(store: Store) -> list[str]:
        await store.register(handlers)
        return [placed.id for placed in await store.put(tasks)]

    return with_store(work)


def run_all(*, fail: str | None = None, stay: bool = False) -> int:
    """Claim what waits and end it: completed, or failed with this message. `stay` leaves it running."""

    async def work(store: Store) -> int:
        session = await store.open_session(SessionInfo(host="elsewhere", pid=1, handlers=("greet", "flaky")))
        claimed = await store.claim(ClaimRequest(session=session.number, slots=(Slot(free=10_000),)))
        if stay:
            return len(claimed.claims)
        error = TaskError(
            category="error", type="OSError", message=fail or "", traceback="File x", fingerprint="abcd1234"
        )
        outcome = Completed('"hello"') if fail is None else Failed(msgspec.structs.replace(error, retryable=False))
        await store.settle(
            [
                Settlement(
                    id=claim.id, token=claim.token, transition=decide(claim, outcome, Policy(), 0, 0.5), worker="w-1"
                )
                for claim in claimed.claims
            ]
        )
        await store.end_session(session.number)
        return len(claimed.claims)

    return with_store(work)


class Process:
    """`pitboss …` as a user starts it."""

    def __init__(self, *args: str, cwd: Path, env: dict[str, str] | None = None) -> None:
        self._log = cwd / "pitboss.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(PITBOSS), *args],
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(env or {})},
            )

    @property
    def said(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def until(self, text: str, *, times: int = 1, limit: float = 40.0) -> None:
        """Wait until it has said this."""
        ends = time.monotonic() + limit
        while self.said.count(text) < times:
            assert time.monotonic() < ends, f"it never said {text!r}:\n{self.said}"
            assert self._process.poll() is None or self.said.count(text) >= times, self.said
            time.sleep(0.02)

    def tell(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ended(self, limit: float = 40.0) -> int:
        return self._process.wait(limit)
