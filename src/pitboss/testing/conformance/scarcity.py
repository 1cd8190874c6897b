"""Short calls for tests of resources: a pool, a queue that is bound to it, and its members."""

from typing import Any

from pitboss.model.duration import SECOND
from pitboss.model.limits import Window
from pitboss.model.outcome import Completed, Failed, Outcome, Rotated
from pitboss.model.policy import Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import (
    Limits,
    NewResource,
    PoolRules,
    Report,
    Resource,
    ResourceChange,
    ResourceOutcome,
)
from pitboss.model.session import Claimed, Slot
from pitboss.model.settlement import SettleAnswer
from pitboss.model.task import Claim, Task, TaskError
from pitboss.testing.conformance.bench import BROKEN, STEADY, Bench

POOL, QUEUE, FETCH = "proxies", "fetching", "fetch"
REFUSED = TaskError(category="refused", message="too many requests")
OK = Report(outcome=ResourceOutcome.OK)
LIMITED = Report(outcome=ResourceOutcome.RATE_LIMITED)
BLOCKED = Report(outcome=ResourceOutcome.BLOCKED)
FAULTY = Report(outcome=ResourceOutcome.RESOURCE_ERROR, error="connection refused")
NOT_MINE = Report(outcome=ResourceOutcome.TASK_ERROR)
UNLIMITED = Limits(concurrency=None)


def limits(**options: Any) -> Limits:
    """Limits, with no limit on concurrency and uses that are not open by default; windows are pairs of count and
    seconds."""
    windows = tuple(Window(count, round(seconds * SECOND)) for count, seconds in options.pop("windows", ()))
    return Limits(**{"windows": windows, "concurrency": None, "use_within": 0} | options)


async def pool(bench: Bench, *members: str | NewResource, **rules: Any) -> None:
    """A pool with these members, and a queue whose tasks each need one."""
    await bench.store.declare_pool(POOL, PoolRules(**rules))
    await bench.store.register([HandlerInfo(name=FETCH, queue=QUEUE, resources=POOL)])
    if members:
        await add(bench, *members)


async def add(bench: Bench, *members: str | NewResource) -> list[bool]:
    new = [NewResource(name=one) if isinstance(one, str) else one for one in members]
    added = await bench.store.add_resources(POOL, new)
    await bench.look()
    return added


async def change(bench: Bench, *names: str, **changes: Any) -> list[str]:
    """Change members; without names, all of them."""
    changed = await bench.store.change_resources(POOL, names or None, ResourceChange(**changes))
    await bench.look()
    return changed


async def remove(bench: Bench, *names: str) -> list[str]:
    removed = await bench.store.change_resources(POOL, names, None)
    await bench.look()
    return removed


async def wait_for_one(bench: Bench, **options: Any) -> Task:
    """A task that needs a member."""
    return await bench.add(**{"handler": FETCH, "queue": QUEUE} | options)


async def line_up(bench: Bench, count: int) -> list[Task]:
    return [await wait_for_one(bench) for _ in range(count)]


async def asked(bench: Bench, free: int = 1) -> Claimed:
    return await bench.ask(Slot(free=free, queues=(QUEUE,)))


async def contested(bench: Bench, count: int) -> Claimed:
    """That many new tasks, and a claim for all of them."""
    await line_up(bench, count)
    return await asked(bench, count)


async def served(bench: Bench, **options: Any) -> Claim:
    """The claim on a new task, which must get a member at once."""
    task = await wait_for_one(bench, **options)
    claims = (await asked(bench)).claims
    assert [claim.id for claim in claims] == [task.id], "the new task was not claimed"
    return claims[0]


def given(claims: list[Claim]) -> list[str | None]:
    """The members that these claims hold."""
    return [claim.leased.name if claim.leased else None for claim in claims]


async def member(bench: Bench, name: str) -> Resource:
    (found,) = await bench.store.resources(POOL, [name])
    return found


async def members(bench: Bench) -> list[Resource]:
    return await bench.store.resources(POOL)


async def done(bench: Bench, claim: Claim, report: Report | None = OK) -> SettleAnswer:
    return await bench.report(claim, Completed(), report=report)


async def handed_on(
    bench: Bench, claim: Claim, report: Report | None = LIMITED, policy: Policy = STEADY
) -> SettleAnswer:
    """The member did not work for the task, which waits for another one."""
    return await bench.report(claim, Rotated(REFUSED), policy, report=report)


async def failed(bench: Bench, claim: Claim, report: Report | None = FAULTY) -> SettleAnswer:
    return await bench.report(claim, _FATAL, report=report)


_FATAL: Outcome = Failed(TaskError(category=BROKEN.category, message=BROKEN.message, retryable=False))
