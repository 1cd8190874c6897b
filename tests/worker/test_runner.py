"""One claim becomes one outcome, whatever happens at its end."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from msgspec.structs import replace

from pitboss import App, Context, Lease
from pitboss.model.duration import SECOND
from pitboss.model.errors import StoreUnavailable
from pitboss.model.outcome import Cancelled, Completed, Failed, Released
from pitboss.model.resource import Leased, UseEnd
from pitboss.model.states import State
from pitboss.model.task import Claim, Token
from pitboss.testing.sandbox import sandbox
from pitboss.worker.runner import Ran, Runner

LEASED = Leased(pool="p", name="m", leased_at=1, open_for=10 * SECOND, shared=True)


@pytest.fixture
def app() -> Iterator[App]:
    app = App("sqlite:///never-opened.db")
    with sandbox(app):
        yield app


def _claim(app: App) -> Claim:
    (name,) = app.handlers
    return Claim(id="t", handler=name, queue="q", params="{}", token=Token(1, 1), attempt=1, leased=LEASED)


@pytest.mark.parametrize("fails", [True, False])
async def test_a_cancellation_while_the_end_of_a_use_is_told_changes_no_outcome(app: App, fails: bool) -> None:
    pool = app.resources("p", rate="100/1s", concurrency=5)
    ended = asyncio.Event()

    @app.task
    async def job(lease: Lease = pool.lease()) -> None:
        lease.uses._tell(Future())  # the store does not answer
        ended.set()
        if fails:
            raise ValueError("x")

    runner, claim = Runner(app.handlers), _claim(app)
    running = asyncio.create_task(runner.run(claim))
    await ended.wait()
    runner.stop(claim)
    ran = await running
    assert isinstance(ran.outcome, Failed if fails else Completed)
    assert ran.use_end == UseEnd(LEASED.use_at)


async def test_a_request_that_was_not_sent_because_the_store_is_away_blames_no_member(app: App) -> None:
    pool = app.resources("p")

    @app.task
    async def job(lease: Lease = pool.lease()) -> None:
        lease.answers.unsent = StoreUnavailable("away")
        raise RuntimeError("net::ERR_BLOCKED_BY_CLIENT at http://site.example/")

    ran: Ran = await Runner(app.handlers).run(_claim(app))
    assert isinstance(ran.outcome, Failed)
    assert ran.report is None


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_cancellation_that_escapes_from_a_handler_is_its_failure(in_thread: bool) -> None:
    """It was given back without an attempt spent, and so ran again without end."""
    app = App("sqlite:///never-opened.db")
    attempts: list[int] = []

    async def waits(context: Context) -> None:
        attempts.append(context.attempt)
        lost = asyncio.get_running_loop().create_future()
        if len(attempts) < 5:
            lost.cancel()
            await lost

    def raises(context: Context) -> None:
        attempts.append(context.attempt)
        if len(attempts) < 5:
            raise asyncio.CancelledError

    app.task(name="job", max_attempts=2, backoff="1s")(raises if in_thread else waits)
    with sandbox(app) as box:
        app.handlers["job"].enqueue()
        (task,) = box.drain()
        assert (task.state, attempts) == (State.SCHEDULED, [1])
        box.drain_all()
        (task,) = box.tasks()
        assert (task.state, attempts) == (State.FAILED, [1, 2])
        assert task.error is not None
        assert (task.error.type, task.error.category) == ("CancelledError", "error")


@pytest.mark.parametrize("asked_for", [True, False])
async def test_a_cancellation_from_outside_is_no_failure(app: App, asked_for: bool) -> None:
    """Only a cancellation that no caller asked for fails: the task's is obeyed, and the worker's gives it back."""
    started = asyncio.Event()

    @app.task
    async def job() -> None:
        started.set()
        await asyncio.get_running_loop().create_future()

    runner, claim = Runner(app.handlers), replace(_claim(app), leased=None)
    running = asyncio.create_task(runner.run(claim))
    await started.wait()
    if asked_for:
        runner.stop(claim)
    else:
        running.cancel()
    assert (await running).outcome == (Cancelled("cancelled") if asked_for else Released(started=True))


async def test_arguments_of_another_release_are_named_in_the_first_line(app: App) -> None:
    """Regression: logs and `dead list` said that they do not fit, but not which, and that nothing was enqueued."""

    @app.task
    async def job(link: str, lang: str) -> None: ...

    claim = replace(_claim(app), params='{"link": "x"}', leased=None)
    ran = await Runner(app.handlers).run(claim)
    assert isinstance(ran.outcome, Failed)
    first, *rest = ran.outcome.error.message.splitlines()
    assert first == 'the stored arguments do not fit task "job": lang: Field required'
    assert "job(link: str, lang: str)" in "".join(rest)
    assert "enqueued" not in ran.outcome.error.message.partition("Fix:")[2]
