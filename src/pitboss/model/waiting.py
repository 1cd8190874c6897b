"""Why a task or a batch does not run: one answer for every face, from the gates that it has to pass."""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from pitboss.model.batch import OVER, Batch
from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.eta import Range
from pitboss.model.fleet import alive
from pitboss.model.gates import (
    Gate,
    Scene,
    batch_waits,
    before,
    of_batch,
    of_line,
    of_order,
    of_queue,
    of_rate,
    of_time,
    soon,
    with_first,
)
from pitboss.model.partition_findings import WaitingKeys
from pitboss.model.partition_gates import of_partition, owner_worker
from pitboss.model.queue import Queue
from pitboss.model.remote_gates import of_remote, remote_ready
from pitboss.model.resource_gates import of_keys, of_resource
from pitboss.model.session import Session
from pitboss.model.snapshot import WorkerFigures
from pitboss.model.states import State
from pitboss.model.supply import ResourcePoolView
from pitboss.model.task import Task
from pitboss.model.text import counted
from pitboss.model.worker_gates import held_for_handler, of_handler, of_manager, of_memory, of_slots, of_workers

# A shorter rest between two uses of a resource is normal and not worth a message.
_WORTH_TELLING: Span = 2 * SECOND
# Every member that fits has failed or was refused. They come back by themselves, but a person should know.
_FAILED_MEMBERS = ("cooling", "blacklisted", "key-cooling", "key-blacklisted")
# Gates of workers that have no room until a task ends.
_BUSY = ("busy", "slot-busy")
# The part of the time in line by which the estimate may be wrong, each way.
_UNSURE = 0.25
_GATES: tuple[Callable[[Task, Scene], Gate | None], ...] = (
    of_batch,
    of_order,
    of_time,
    of_queue,
    of_manager,
    of_handler,
    of_workers,
    of_partition,
    of_keys,
    of_resource,
    of_rate,
    of_memory,
    of_slots,
    of_line,
)
_REMOTE_GATES = (of_batch, of_order, of_time, of_queue, of_remote, of_partition, of_resource, of_rate, of_line)


# Tasks before another one are counted no further.
MOST_BEFORE = 20_000


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why a task does not run, or what it does. `cause` is stable and may be matched by programs.

    `gates` are all gates of a waiting task in their order; the first shut one is the cause. `stuck`: without a person
    it never starts. `before` is how many pending tasks of its queue stand before it by priority and age, `MOST_BEFORE`
    if there are more; None if it is not pending. `starts` is when it starts, from now; None if that is unknown. `helps`
    are commands to type.
    """

    sentence: str
    cause: str
    gates: tuple[Gate, ...] = ()
    stuck: bool = False
    starts: Range | None = None
    helps: tuple[str, ...] = ()
    before: int | None = None

    @property
    def shut(self) -> Gate | None:
        """The gate that it waits at."""
        return next((gate for gate in self.gates if gate.shut), None)

    @property
    def until(self) -> Moment | None:
        return None if self.shut is None else self.shut.until


def why_task(task: Task, scene: Scene, sessions: Sequence[Session] = ()) -> Why:
    """The answer for one task. `sessions` are needed for a running one: who runs it, and is it alive?"""
    if task.state is State.RUNNING:
        return _running(task, sessions, scene.now)
    if task.state.finished:
        ended = f"it has ended: {task.reason}" if task.reason else f"it has ended: {task.state}"
        return Why(sentence=ended, cause=task.state.value)
    looks = _REMOTE_GATES if task.handler in scene.remote else _GATES
    gates = tuple(gate for look in looks if (gate := look(task, scene)) is not None)
    shut = [gate for gate in gates if gate.shut]
    if held_for_handler(task):
        shut.sort(key=lambda gate: gate.name != "handler")
    if not shut:
        return Why(sentence=_ready(task, scene), cause="ready", gates=gates, starts=_starts(task, scene, gates))
    return Why(
        sentence=shut[0].sentence,
        cause=shut[0].cause,
        gates=gates,
        stuck=any(gate.stuck for gate in shut),
        starts=_starts(task, scene, gates),
        helps=tuple(dict.fromkeys(text for gate in shut for text in gate.helps)),
    )


def waits_for(why: Why, first: Task, now: Moment) -> Why:
    """The answer for a task that waits in the line of its order key, with the task at the head of that line."""
    gates = tuple(with_first(gate, first, now) if gate.name == "order" and gate.shut else gate for gate in why.gates)
    helps = tuple(dict.fromkeys(text for gate in gates if gate.shut for text in gate.helps))
    named = msgspec.structs.replace(why, gates=gates, helps=helps)
    shut = named.shut
    return named if shut is None or shut.cause != why.cause else msgspec.structs.replace(named, sentence=shut.sentence)


def why_batch(batch: Batch, scene: Scene, item: Task | None = None) -> Why | None:
    """The answer for a batch; None if it has ended or makes progress. `item` is one of its items that wait."""
    if batch.status in OVER:
        return None
    gate = batch_waits(batch, scene.lanes)
    if gate is not None:
        said = f"it {gate.says}"
        return Why(sentence=said, cause=gate.cause, gates=(gate,), stuck=gate.stuck, helps=gate.helps)
    if batch.counts.get(State.RUNNING) or item is None:
        return None
    found = why_task(item, scene)
    if found.shut is None or found.shut.cause in _BUSY or _brief(found, scene.now):
        return None
    if found.shut.name == "time":
        later = f"it has {counted(batch.counts.get(State.SCHEDULED, 0), 'item')} due later: {found.shut.says}"
        return msgspec.structs.replace(found, sentence=later)
    return found


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks of a queue that do not start for one cause, although they are due. `tasks` is how many wait for it at
    least; `all`: every task of the queue that was looked at. `example` is one of them."""

    queue: str
    cause: str
    sentence: str
    tasks: int
    example: str
    all: bool = False
    stuck: bool = False
    helps: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        least = "" if self.all else "at least "
        # Tasks that wait for the same cause have different keys.
        then = "; one of them:" if self.tasks > 1 and self.sentence.startswith("its key ") else ":"
        return f'{least}{counted(self.tasks, "task")} of queue "{self.queue}" cannot start{then} {self.sentence}'


def troubles(
    waiting: Sequence[tuple[Task, Why]], queues: Sequence[Queue], keys: Sequence[WaitingKeys] = ()
) -> list[Trouble]:
    """What keeps tasks from starting and is not the normal course of things, such as a busy worker or a rate.

    `keys` are those that no live slot takes: their tasks are counted by key, since the next task may have another one.
    """
    by_key = {(one.queue, one.why.cause): one.waiting for one in keys}
    groups: dict[tuple[str, str], list[tuple[Task, Why]]] = {}
    for task, why in waiting:
        groups.setdefault((task.queue, why.cause), []).append((task, why))
    seen = Counter(task.queue for task, _ in waiting)
    counts = {one.name: one.counts for one in queues}
    found = []
    for (queue, cause), group in groups.items():
        task, why = group[0]
        if not why.stuck and cause not in _FAILED_MEMBERS:
            continue
        waits = counts.get(queue, {}).get(task.state, 0)
        # Only pending tasks and items that were not drawn all wait for what the ones that were looked at wait for.
        alike = task.state is State.PENDING or (task.state is State.HELD and not held_for_handler(task))
        whole = len(group) == seen[queue] and (alike or len(group) == waits)
        tasks = max(waits, 1) if whole else len(group)
        if waits_for_slot(why):
            whole = (queue, cause) in by_key
            tasks = max(len(group), by_key.get((queue, cause), 0))
        found.append(
            Trouble(
                queue=queue,
                cause=cause,
                sentence=why.sentence,
                tasks=tasks,
                example=task.id,
                all=whole,
                stuck=why.stuck,
                helps=why.helps,
            )
        )
    return found


def waits_for_slot(why: Why) -> bool:
    """Whether it waits for a slot that takes its partition key, and not without a person."""
    return why.stuck and why.shut is not None and why.shut.name == "partition"


def spoken_place(why: Why) -> str | None:
    """ "about 1,204th of its queue, by priority and age"."""
    if why.before is None:
        return None
    if why.before >= MOST_BEFORE:
        return f"behind {MOST_BEFORE:,}+ pending tasks of its queue, by priority and age"
    return f"about {_ordinal(why.before + 1)} of its queue, by priority and age"


def _ordinal(number: int) -> str:
    last = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{last}"


def spoken_start(why: Why) -> str:
    """When it starts, as a person says it."""
    if why.stuck:
        return "not before that is changed"
    if why.starts is None:
        return "unknown"
    earliest, latest = why.starts.earliest, why.starts.latest
    if latest is None:
        return f"in at least {soon(earliest)}" if earliest else "unknown"
    if latest < SECOND:
        return "at once"
    if latest - earliest < 2 * SECOND:
        return f"in {soon(latest)}"
    return f"in about {soon((earliest + latest) // 2)}, give or take {soon((latest - earliest) // 2)}"


def _brief(why: Why, now: Moment) -> bool:
    return why.shut is not None and why.shut.name == "resource" and 0 < (why.until or 0) - now < _WORTH_TELLING


def _running(task: Task, sessions: Sequence[Session], now: Moment) -> Why:
    living = alive(sessions, now)
    managed = any(one.info.kind == "manager" for one in living)
    owner = next((one.info.host for one in living if one.number == task.session), None)
    since = f" for {spoken(now - task.started_at)}" if task.started_at is not None else ""
    stopping = "; it was asked to stop" if task.cancel_asked else ""
    if task.claim_expires_at is not None:
        left = task.claim_expires_at - now
        if left <= 0:
            return _orphaned(task, "its remote worker gave no sign of life", "claim-over", managed=managed)
        claim = f"its claim ends in {soon(left)} without a sign of life"
        return Why(sentence=f"remote worker {task.worker} runs it{since}; {claim}{stopping}", cause="running")
    if owner is None:
        return _orphaned(task, "its manager is gone", "manager-gone", managed=managed)
    return Why(sentence=f"it runs{since} on {owner}{stopping}", cause="running")


def _orphaned(task: Task, why: str, cause: str, *, managed: bool) -> Why:
    """Its claim is over. The next sweep of any manager takes it back."""
    then = "is cancelled" if task.cancel_asked else "runs again"
    if managed:
        return Why(sentence=f"{why}; it {then} within seconds", cause=cause)
    return Why(
        sentence=f"{why}; it {then} when a manager starts",
        cause=cause,
        stuck=True,
        helps=("pitboss up",),
    )


def _ready(task: Task, scene: Scene) -> str:
    line = scene.line(task)
    ahead = 0 if line is None else before(task, line)
    least = "" if line is None or line.whole else "at least "
    told = f"{least}{counted(ahead, 'task')} {'is' if ahead == 1 else 'are'} before it" if ahead else ""
    if task.handler in scene.remote:
        return remote_ready(task, told)
    return f"it is ready; {told}" if told else "it is ready, and waits for a free worker that serves its queue"


def _starts(task: Task, scene: Scene, gates: Sequence[Gate]) -> Range | None:
    """From the waits of shut gates, and the pace at which the tasks before it can start."""
    shut = [gate for gate in gates if gate.shut]
    if any(gate.stuck or gate.name in ("batch", "order") for gate in shut) or not scene.managers:
        return None
    wait = max((gate.until - scene.now for gate in shut if gate.until is not None), default=0)
    line = scene.line(task)
    ahead = 0 if line is None else before(task, line) + any(gate.cause in _BUSY for gate in shut)
    open_ended = any(gate.until is None for gate in shut)
    if any(gate.name == "partition" and gate.until is None and gate.cause not in _BUSY for gate in shut):
        # The pace of workers says nothing of a key that is full, moves, or has no owner.
        return Range(wait, None) if wait else None
    pace = _pace(task, scene)
    if pace is None:
        known = not ahead and not open_ended and (line is None or line.whole)
        return Range(wait, wait) if known else Range(wait, None) if wait else None
    span = round(ahead / pace * SECOND)
    if line is not None and not line.whole:
        return Range(wait + span, None)
    return Range(wait + round(span * (1 - _UNSURE)), wait + round(span * (1 + _UNSURE)))


def _pace(task: Task, scene: Scene) -> float | None:
    """Starts per second that rate, resources and workers allow; None if nothing limits them that is known."""
    queue = scene.queues.get(task.queue)
    paces: list[float] = []
    if queue is not None and queue.rate:
        paces.append(min(window.count / window.per for window in queue.rate) * SECOND)
    pool = scene.pools.get(queue.resources or "") if queue is not None else None
    if pool is not None:
        labels = frozenset(task.want.labels if task.want is not None else ())
        if (pool.name, labels) not in scene.known:
            scene.known[pool.name, labels] = _fitting(pool, labels).supply(scene.now).steady
        paces.append(scene.known[pool.name, labels])
    usual = max((one.snapshot.usual.get(task.handler, 0) for one in scene.managers), default=0)
    if workers := [(slots, mean) for slots, worker in _workers(task, scene) if (mean := worker.mean or usual)]:
        paces.append(sum(slots * SECOND / mean for slots, mean in workers))
    limited = [pace for pace in paces if 0 < pace < float("inf")]
    return min(limited, default=None)


def _workers(task: Task, scene: Scene) -> list[tuple[int, WorkerFigures]]:
    """The workers that take tasks like this one, each with the number of tasks that it runs at the same time."""
    owner = scene.owner(task)
    if owner is None:
        return [(view.pool.concurrency, worker) for view in scene.taking(task) for worker in view.ready]
    found = [owner_worker(scene.managers, slot) for slot in scene.slots if slot.name == owner]
    return [(slots, worker) for one in found if one is not None for worker, slots in [one]]


def _fitting(pool: ResourcePoolView, wanted: frozenset[str]) -> ResourcePoolView:
    return ResourcePoolView(pool.name, pool.rules, [one for one in pool.members if wanted <= set(one.labels)])
