"""Test your own handlers: an app on a store in memory, with a clock that you move and tasks that you run.

with sandbox(app) as box:
    fetch.enqueue("https://example.org")
    box.assert_enqueued(fetch, url="https://example.org")
    box.drain()
    assert box.tasks(state="completed")
"""

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from pitboss.client.app_core import AppCore
from pitboss.dispatch.settler import settlement_of
from pitboss.engines.protocol import FullStore
from pitboss.model.canonical import from_json, to_json
from pitboss.model.duration import SECOND, Moment
from pitboss.model.filter import EVERYTHING, Filter, by, parsed
from pitboss.model.outcome import decide, progressed
from pitboss.model.resource import Shortage, UseEnd
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.task import Claim, NewTask, Placed, Task, Token
from pitboss.secrets import KeyRing, new_key
from pitboss.testing.clock import FakeClock
from pitboss.worker.runner import Runnable, Runner

T = TypeVar("T")
_MANY = 1_000_000
_GROUP = 100
_LIMIT = 60.0
_POOL = "sandbox"
# A handler may move the clock too, by using its resource once more.
_LONG = 3650 * 86_400 * SECOND


class Sandbox:
    """An app's store during a test."""

    def __init__(self, app: AppCore, clock: FakeClock, *, inline: bool) -> None:
        self.clock = clock
        self._app, self._inline = app, inline
        store = app.use("memory://", clock=clock)
        assert isinstance(store, FullStore)
        self.store = store
        # Keys for this test only: it leaves no file behind.
        app.use_keys(KeyRing([new_key()]))
        self._runner = Runner(app.handlers, report=self._progressed, hidden=app.redactor.hidden)
        self._reports: list[Settlement] = []
        self._wait_in_its_own_time()
        if inline:
            self._run_what_is_put()

    def tasks(self, text: str = "", /, **fields: str | Sequence[str]) -> list[Task]:
        """The tasks of a filter, oldest first: `box.tasks(state="failed")`."""
        wanted = parsed(text).also(**fields)
        return self._do(self._find(wanted))

    def assert_enqueued(self, task: "Runnable | str", count: int | None = None, /, **params: Any) -> list[Task]:
        """At least one task (or exactly `count`) of this handler was put, with these among its params."""
        found = self._matching(task, params)
        if not found if count is None else len(found) != count:
            wanted = "a task" if count is None else f"{count} tasks"
            raise AssertionError(
                f"expected {wanted} of {_name(task)} with {params}; {len(found)} match.\n{self._told()}"
            )
        return found

    def refute_enqueued(self, task: "Runnable | str", /, **params: Any) -> None:
        """No task of this handler with these params was put."""
        found = self._matching(task, params)
        if found:
            raise AssertionError(
                f"expected no task of {_name(task)} with {params}; {len(found)} match.\n{self._told()}"
            )

    def drain(self) -> list[Task]:
        """Run everything that is due now, and the tasks that this enqueues, until nothing is due; the tasks that ran.

        Retries and delayed tasks wait for `clock.advance`, or for `drain_all`.
        """
        return self._do(self._drained())

    def drain_all(self) -> list[Task]:
        """Run everything, moving the clock to the next due time, until nothing waits that could run."""
        return self._do(self._drained(through_time=True))

    def close(self) -> None:
        self._app.close()
        self._app.use_keys(None)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._app.run(work, limit=_LIMIT, what="the sandbox")

    async def _find(self, wanted: Filter) -> list[Task]:
        return list((await self.store.find(wanted, limit=_MANY, oldest_first=True)).tasks)

    async def _drained(self, *, through_time: bool = False) -> list[Task]:
        ran: dict[str, None] = {}
        while True:
            session = await self._open()
            slot = Slot(free=_GROUP, pool=_POOL, number=await self._slot(session))
            claimed = await self.store.claim(
                ClaimRequest(session=session, slots=(slot,), handlers=frozenset(self._app.handlers))
            )
            for claim in claimed.claims:
                ran[claim.id] = None
                await self._settle(claim)
            if not claimed.claims:
                if not through_time or claimed.next_due is None:
                    break
                self.clock.advance_to(claimed.next_due)
        return [task for task in await self.store.get(list(ran)) if task is not None]

    async def _open(self) -> int:
        """A session for this drain. The test may have moved the clock past the end of the last one."""
        for pool in self._app.resource_pools.values():
            await self.store.declare_pool(pool.name, pool.declared.rules)
        await self.store.register([handler.describe() for handler in self._app.handlers.values()])
        info = SessionInfo(host="sandbox", handlers=tuple(self._app.handlers), ttl=_LONG)
        session = await self.store.open_session(info)
        return session.number

    async def _slot(self, session: int) -> int | None:
        """The number of a slot that owns all keys of queues with partitions; None if no queue has any."""
        divided = [queue.name for queue in await self.store.queues() if queue.partitions is not None]
        if not divided:
            return None
        (slot,) = await self.store.take_slots(session, _POOL, _POOL, [0])
        lead = await self.store.campaign(session)
        for name in divided:
            keys = await self.store.partitions(name, counts=False)
            await self.store.assign(name, {one.key: slot.name for one in keys}, term=lead.term)
        return slot.number

    async def _settle(self, claim: Claim) -> None:
        outcome, report, use_end = await self._runner.run(claim)
        reports, self._reports = self._reports, []
        policy = self._app.handlers[claim.handler].policy
        transition = decide(claim, outcome, policy, self.clock.now(), 0.5)
        await self.store.settle([*reports, settlement_of(claim, transition, report=report, use_end=use_end)])

    def _progressed(self, claim: Claim, percent: int, note: str | None) -> None:
        self._reports.append(Settlement(id=claim.id, token=claim.token, transition=progressed(percent, note)))

    def _run_what_is_put(self) -> None:
        put = self.store.put

        async def put_and_run(tasks: Sequence[NewTask]) -> list[Placed]:
            placed = await put(tasks)
            await self._drained()
            return placed

        self.store.put = put_and_run  # type: ignore[method-assign]

    def _wait_in_its_own_time(self) -> None:
        """Make a further use of a resource move the clock instead of waiting for its limits."""
        use = self.store.use

        async def use_when_it_may(
            holder: Token | str,
            task: str | None = None,
            *,
            instead: Moment | None = None,
            ends: UseEnd | None = None,
        ) -> Moment | Shortage:
            answer = await use(holder, task, instead=instead, ends=ends)
            while isinstance(answer, Shortage) and answer.until is not None:
                self.clock.advance_to(answer.until)
                answer = await use(holder, task, instead=instead)
            return answer

        self.store.use = use_when_it_may  # type: ignore[method-assign]

    def _matching(self, task: "Runnable | str", params: Mapping[str, Any]) -> list[Task]:
        wanted = from_json(to_json(params)).items()
        found = self._do(self._find(by(task=_name(task))))
        return [one for one in found if all(from_json(one.params).get(key) == value for key, value in wanted)]

    def _told(self) -> str:
        tasks = self._do(self._find(EVERYTHING))
        return "\n".join(f"  {task.handler} {task.params} ({task.state})" for task in tasks) or "  nothing was put"


@contextmanager
def sandbox(app: AppCore, *, inline: bool = False, clock: FakeClock | None = None) -> Iterator[Sandbox]:
    """An app on a store of its own during a test. `inline` runs each task as it is enqueued."""
    box = Sandbox(app, clock or FakeClock(), inline=inline)
    try:
        yield box
    finally:
        box.close()


def _name(task: "Runnable | str") -> str:
    return task if isinstance(task, str) else task.name


__all__ = ["Sandbox", "sandbox"]
