"""The gates that a waiting task passes before it starts: each open or shut, with its figure.

Here are those of its batch, its order key, its time and its queue; workers and resources have modules of their own.
`model.waiting` makes one answer of all of them; its callers read the `Scene` from the store.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from pitboss.model.batch import Batch, BatchStatus, Lane
from pitboss.model.batching import HELD_IN_ORDER
from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.fleet import ManagerView, WorkerPoolView, worker_pools
from pitboss.model.outcome import NO_KEY
from pitboss.model.partition import Partition
from pitboss.model.placement import NO_MEMORY
from pitboss.model.pool_slot import PoolSlot
from pitboss.model.queue import Queue
from pitboss.model.session import Session
from pitboss.model.states import State
from pitboss.model.supply import ResourcePoolView
from pitboss.model.task import Task
from pitboss.model.text import counted, one_line


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """One gate. `passed` None: nothing is known yet. `says` is its answer, `figure` the number behind it.

    A shut gate has a `cause`, which is stable and may be matched by programs, and a `sentence` that stands alone.
    `until` is when it opens by itself, if that is known; `stuck`: it never does, and `helps` are commands that open it.
    """

    name: str
    what: str
    says: str
    passed: bool | None = True
    figure: str = ""
    cause: str = ""
    sentence: str = ""
    until: Moment | None = None
    stuck: bool = False
    helps: tuple[str, ...] = ()

    @property
    def shut(self) -> bool:
        return self.passed is False


class Line(msgspec.Struct, frozen=True):
    """The pending tasks of a queue that were read; `whole`: these are all."""

    tasks: Sequence[Task] = ()
    whole: bool = True


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What surrounds waiting tasks, read at one moment. `bound` has the member of a pool's sticky key.

    `remote` are the handlers whose tasks remote workers run; `others` the live sessions of HTTP servers and of these
    workers. `keys` are those of queues with partitions, by queue and key; `slots` may own them, and `led` says that a
    manager leads. `known` keeps what was computed from all members of a pool: many tasks wait for the same.
    """

    now: Moment
    managers: Sequence[ManagerView] = ()
    others: Sequence[Session] = ()
    remote: frozenset[str] = frozenset()
    queues: Mapping[str, Queue] = {}
    pools: Mapping[str, ResourcePoolView] = {}
    bound: Mapping[tuple[str, str], str] = {}
    batches: Mapping[str, Batch] = {}
    lanes: Mapping[str, Lane] = {}
    lines: Mapping[str, Line] = {}
    keys: Mapping[tuple[str, str], Partition] = {}
    slots: Sequence[PoolSlot] = ()
    led: bool = True
    known: dict[Hashable, Any] = {}

    def knowing(self, handler: str) -> list[ManagerView]:
        """The managers whose workers can run this handler."""
        return [one for one in self.managers if one.knows(handler)]

    def serving(self, task: Task) -> list[WorkerPoolView]:
        """The worker pools that can run this task, whatever they do now."""
        pools = worker_pools(self.knowing(task.handler))
        return [view for view in pools if view.pool.queues is None or task.queue in view.pool.queues]

    def owner(self, task: Task) -> str | None:
        """The slot that alone takes tasks of its key."""
        queue = self.queues.get(task.queue)
        if queue is None or queue.partitions is None or not queue.partitions.exclusive or task.partition is None:
            return None
        one = self.keys.get((task.queue, task.partition))
        return None if one is None else one.owner

    def line(self, task: Task) -> Line | None:
        """The line in which it waits: that of its queue, or the part of it that its owner takes."""
        line, owner = self.lines.get(task.queue), self.owner(task)
        if line is None or owner is None:
            return line
        return Line([one for one in line.tasks if self.owner(one) == owner], line.whole)

    def taking(self, task: Task) -> list[WorkerPoolView]:
        """Those of them that take tasks."""
        return [view for view in self.serving(task) if not view.pool.paused and not view.manager.snapshot.draining]


def of_batch(task: Task, scene: Scene) -> Gate | None:
    batch = scene.batches.get(task.batch or "")
    if batch is None:
        return None
    waits = batch_waits(batch, scene.lanes)
    return waits or Gate(name="batch", what=f"Batch {batch.name or batch.id[-12:]}", says=f"is {batch.status}")


def batch_waits(batch: Batch, lanes: Mapping[str, Lane]) -> Gate | None:
    """The gate of a batch whose items do not start; None if they may, or if it has ended. Its sentence begins with a
    verb: the subject is the batch."""
    lane, short = lanes.get(batch.lane), batch.id[-12:]
    line = f"place {batch.position}" + (f" of {lane.queued}" if lane is not None else "")
    running = counted(batch.counts.get(State.RUNNING, 0), "running item")
    match batch.status:
        case BatchStatus.QUEUED:
            cause, says = "batch-queued", f'waits for its turn in lane "{batch.lane}": {line}'
            helps: tuple[str, ...] = (f"pitboss batches move {short} top", f"pitboss batches start {short}")
        case BatchStatus.PAUSED:
            cause, says, line = "batch-paused", f"is paused{_why(batch)} until an operator resumes it", ""
            helps = (f"pitboss batches resume {short}",)
        case BatchStatus.PAUSING | BatchStatus.CANCELLING:
            cause, says, line = f"batch-{batch.status}", f"is {batch.status}: it waits for {running} to end", ""
            helps = (f"pitboss batches resume {short}",) if batch.status is BatchStatus.PAUSING else ()
        case _:
            return None
    return Gate(
        name="batch",
        what=f"Batch {batch.name or short}",
        passed=False,
        says=says,
        figure=line,
        cause=cause,
        sentence=f"its batch {says}",
        stuck=cause == "batch-paused",
        helps=helps,
    )


def _why(batch: Batch) -> str:
    return f" ({batch.reason})" if batch.reason else ""


def of_order(task: Task, scene: Scene) -> Gate | None:
    """The line of its order key. Which task is the first one is not part of the scene: `with_first` adds it."""
    if task.order_key is None:
        return None
    what = f"Order {task.order_key}"
    if not held_in_order(task):
        return Gate(name="order", what=what, says="it is the first one of its line")
    return Gate(
        name="order",
        what=what,
        passed=False,
        says="an earlier task is not finished",
        cause="order",
        sentence=f'tasks with the order key "{task.order_key}" run one at a time, and an earlier one is not finished',
    )


def held_in_order(task: Task) -> bool:
    """Whether it waits for another task with its order key."""
    return task.state is State.HELD and task.reason == HELD_IN_ORDER.reason


def with_first(gate: Gate, first: Task, now: Moment) -> Gate:
    """The gate of a line that names the task at its head."""
    does = {State.RUNNING: "runs", State.SCHEDULED: "is due later", State.HELD: "is held"}.get(first.state, "waits")
    if first.state is State.RUNNING and first.started_at is not None:
        does += f" for {soon(now - first.started_at)}"
    elif first.state is State.SCHEDULED and first.run_at is not None and first.run_at > now:
        does = f"is due in {soon(first.run_at - now)}"
    said = f"it waits for task {first.id} ({first.handler}), the first one with its order key, which {does}"
    return msgspec.structs.replace(
        gate, says=f"task {first.id[-12:]} is before it", figure=does, sentence=said, helps=(f"pitboss why {first.id}",)
    )


def of_time(task: Task, scene: Scene) -> Gate:
    now = scene.now
    if task.expires_at is not None and task.expires_at <= now:
        said = "it is past its expiry: the next manager that meets it cancels it"
        return _time(says="is past its expiry", passed=False, cause="expired", sentence=said)
    # A time that has come stays come: a pending task waits for it no more, even if the clock was set back since.
    waits = task.state in (State.SCHEDULED, State.HELD)
    if not waits or task.run_at is None or task.run_at <= now or task.reason in (NO_MEMORY, NO_KEY.reason):
        due = f"is due since {spoken(now - task.run_at)}" if task.run_at is not None and task.run_at < now else "is due"
        return _time(says=due, figure=_attempts(task))
    due = f"due in {spoken(task.run_at - now)}"
    if task.error is not None and task.attempts:
        told = one_line(task.error.message)
        cause, said = "retry", f"attempt {task.attempts} failed{told and f' ({told})'}, and the next one is {due}"
    else:
        cause, said = "scheduled", f"it is {due}" + (f": {task.reason}" if task.reason else "")
    return _time(says=f"is {due}", passed=False, figure=_attempts(task), cause=cause, sentence=said, until=task.run_at)


def of_queue(task: Task, scene: Scene) -> Gate:
    queue = scene.queues.get(task.queue) or Queue(name=task.queue)
    what, figure = f"Queue {queue.name}", f"{queue.waiting:,} {'waits' if queue.waiting == 1 else 'wait'}"
    if queue.capacity is not None:
        figure += f", room for {queue.capacity:,}"
    if not queue.paused:
        return Gate(name="queue", what=what, says="is open", figure=figure)
    says = how_paused(queue, scene.now)
    return Gate(
        name="queue",
        what=what,
        passed=False,
        says=says,
        figure=figure,
        cause="queue-paused",
        sentence=f'queue "{queue.name}" {says}',
        stuck=True,
        helps=(f"pitboss queues resume {queue.name}",),
    )


class Pausable(Protocol):
    """What remembers who paused it: a queue, a schedule, a worker pool."""

    @property
    def paused_by(self) -> str | None: ...

    @property
    def paused_at(self) -> Moment | None: ...

    @property
    def paused_reason(self) -> str | None: ...


def how_paused(one: Pausable, now: Moment) -> str:
    """ "was paused by ann 3m ago: the site is down"."""
    by = f" by {one.paused_by}" if one.paused_by else ""
    since = now - one.paused_at if one.paused_at is not None else 0
    told = f"was paused{by} {spoken(since)} ago" if since >= SECOND else f"is paused{by}"
    return told + (f": {one.paused_reason}" if one.paused_reason else "")


def of_rate(task: Task, scene: Scene) -> Gate | None:
    queue = scene.queues.get(task.queue)
    if queue is None or not queue.rate:
        return None
    rate = ", ".join(f"{window.count} per {spoken(window.per)}" for window in queue.rate)
    if queue.opens_at is None or queue.opens_at <= scene.now:
        return Gate(name="rate", what=f"Rate {rate}", says="allows a start now")
    wait = f"next in {soon(queue.opens_at - scene.now)}"
    return Gate(
        name="rate",
        what=f"Rate {rate}",
        passed=False,
        says="is used up",
        figure=wait,
        cause="rate",
        sentence=f'queue "{queue.name}" starts at most {rate}; {wait}',
        until=queue.opens_at,
        helps=(f"pitboss queues limit {queue.name} --rate …",),
    )


def of_line(task: Task, scene: Scene) -> Gate | None:
    """How many pending tasks are before it. It is never shut: it moves as tasks start."""
    line = scene.line(task)
    if line is None or task.state is not State.PENDING:
        return None
    said, same = before(task, line), before(task, Line([one for one in line.tasks if one.want == task.want]))
    total = scene.queues[task.queue].counts.get(State.PENDING, 0) if task.queue in scene.queues else len(line.tasks)
    least = f"{said:,}" if line.whole else f"at least {said:,}"
    alike = f" ({same:,} with the same need)" if same and same < said else ""
    return Gate(
        name="line",
        what="Line",
        says=f"{least} before it{alike}, {total:,} in the whole queue"
        if said or not line.whole
        else "it is the next one",
        figure=f"priority {task.priority}",
    )


def before(task: Task, line: Line) -> int:
    """How many of the tasks that were read start before this one."""
    return sum((one.priority, one.id) < (task.priority, task.id) for one in line.tasks)


def soon(left: Span) -> str:
    """A wait in whole seconds, at least one."""
    return spoken(max(SECOND, -(-left // SECOND) * SECOND))


def _time(**gate: Any) -> Gate:
    return Gate(name="time", what="Its own time", **gate)


def _attempts(task: Task) -> str:
    if task.max_attempts is None:
        return f"attempt {task.attempts + 1}"
    return f"attempt {task.attempts + 1} of {task.max_attempts}"
