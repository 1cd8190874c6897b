"""The gates of managers and workers: one runs, knows the handler, serves the queue, has memory and a free slot."""

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from pitboss.model.duration import Moment
from pitboss.model.fleet import WorkerPoolView, worker_pools
from pitboss.model.gates import Gate, Scene, held_in_order
from pitboss.model.health import OVER_LIMIT
from pitboss.model.placement import NO_MEMORY, admits
from pitboss.model.pool import spoken_size
from pitboss.model.snapshot import WorkerState
from pitboss.model.states import State
from pitboss.model.task import Task
from pitboss.model.text import counted, listed, one_line

_MORE_MANAGERS = "start a manager for other workers: pitboss up --only N, or one without --only"


def of_manager(task: Task, scene: Scene) -> Gate:
    if scene.managers:
        hosts = sorted({one.host for one in scene.managers})
        return Gate(
            name="manager", what="Manager", says=f"{counted(len(scene.managers), 'manager')} on {listed(hosts)}"
        )
    return Gate(
        name="manager",
        what="Manager",
        passed=False,
        says="none runs on this store",
        figure="0 managers",
        cause="no-manager",
        sentence="no manager is running on this store",
        stuck=True,
        helps=("pitboss up",),
    )


def of_handler(task: Task, scene: Scene) -> Gate:
    knowing = scene.knowing(task.handler)
    workers = sum(len(one.live) for one in knowing)
    figure = counted(workers, "worker") if workers else counted(len(knowing), "manager")
    gate = Gate(name="handler", what=f"Handler {task.handler}", says=f"is known by {figure}", figure=figure)
    if knowing and not held_for_handler(task):
        return gate
    if not scene.managers and not held_for_handler(task):
        return replace(gate, passed=None, says="is not known without a manager", figure="")
    if knowing:
        said = f'a manager that knows the handler "{task.handler}" has come: it is released within seconds'
        return replace(gate, passed=False, cause="handler-back", sentence=said, until=scene.now)
    return replace(
        gate,
        passed=False,
        says="is known by no live worker",
        figure="0 workers",
        cause="handler",
        sentence=f'no live worker knows the handler "{task.handler}"',
        stuck=True,
        helps=("start the app that has it with pitboss up", f"pitboss tasks cancel {task.id}"),
    )


def held_for_handler(task: Task) -> bool:
    """Whether the store holds it until a worker knows its handler, whatever else is the matter."""
    return task.state is State.HELD and task.reason != "batch" and not held_in_order(task)


def of_workers(task: Task, scene: Scene) -> Gate:
    serving = scene.serving(task)
    if not worker_pools(scene.knowing(task.handler)):
        told = worker_pools(scene.managers)
        says = "none knows its handler" if told else "no manager has told of its workers yet"
        return Gate(name="workers", what="Workers", passed=None, says=says)
    if not serving:
        return _no_workers(
            f'no worker pool serves queue "{task.queue}"',
            "unserved",
            f"add {task.queue} to the queues of a worker pool, or check the queue that the task names",
        )
    taking, names = scene.taking(task), listed(sorted({view.pool.name for view in serving}))
    if not taking:
        return _not_taking(serving, names)
    if any(view.ready for view in taking):
        ready = counted(sum(len(view.ready) for view in taking), "ready worker")
        return Gate(
            name="workers", what="Workers", says=f"{ready} of pool {names} serve queue {task.queue}", figure=ready
        )
    return _none_ready(taking)


def of_memory(task: Task, scene: Scene) -> Gate | None:
    """Only where a manager measured this handler and its host is short of memory, or the task was sent back for it."""
    told = [one for one in scene.knowing(task.handler) if task.handler in one.snapshot.needs]
    refused = task.reason == NO_MEMORY
    if not told:
        return _no_memory("its need is not measured yet", "a host", task.run_at) if refused else None
    best = max(told, key=lambda one: one.snapshot.budget - one.snapshot.in_use)
    shot, need = best.snapshot, best.snapshot.needs[task.handler]
    figure = f"{spoken_size(shot.in_use)} of {spoken_size(shot.budget)} in use; it needs {spoken_size(need)}"
    if refused or not admits(need, shot.in_use, shot.budget):
        return _no_memory(figure, best.host, task.run_at)
    return Gate(name="memory", what="Memory", says=f"is enough on {best.host}", figure=figure)


def of_slots(task: Task, scene: Scene) -> Gate | None:
    ready = [worker for view in scene.taking(task) for worker in view.ready]
    slots = sum(len(view.ready) * view.pool.concurrency for view in scene.taking(task))
    if not ready or not slots:
        return None
    free, used = sum(view.free for view in scene.taking(task)), sum(worker.running for worker in ready)
    figure = f"{free:,} of {counted(slots, 'seat')} free"
    if free:
        return Gate(name="slots", what="Free worker", says="there is one", figure=figure)
    names = sorted({view.pool.name for view in scene.taking(task)})
    return Gate(
        name="slots",
        what="Free worker",
        passed=False,
        says="all are busy",
        figure=figure,
        cause="busy",
        sentence=f"every worker is busy: {counted(slots, 'seat')} of pool {listed(names)} run tasks"
        if used >= slots
        else f"no worker of pool {listed(names)} takes a task now: {used:,} of {counted(slots, 'seat')} are in use, "
        "and the others pause or run a task alone",
        helps=_more_workers(task, scene, len(ready)),
    )


def _more_workers(task: Task, scene: Scene, ready: int) -> tuple[str, ...]:
    """What gives a task more workers. A key of a table has one slot, whatever their number."""
    queue = scene.queues.get(task.queue)
    if queue is not None and queue.partitions is not None and queue.partitions.mode == "static" and task.partition:
        return ()
    free = sorted({view.pool.name for view in scene.taking(task) if not view.pool.only})
    return (f"pitboss pools scale {free[0]} {ready + 1}",) if free else (_MORE_MANAGERS,)


def _no_workers(sentence: str, cause: str, *helps: str, stuck: bool = True) -> Gate:
    return Gate(
        name="workers",
        what="Workers",
        passed=False,
        says=sentence,
        figure="0 ready",
        cause=cause,
        sentence=sentence,
        stuck=stuck,
        helps=helps,
    )


def _not_taking(serving: Sequence[WorkerPoolView], names: str) -> Gate:
    paused = sorted({view.pool.name for view in serving if view.pool.paused})
    if paused:
        reasons = sorted({view.pool.paused_reason for view in serving if view.pool.paused and view.pool.paused_reason})
        why = f": {'; '.join(reasons)}" if reasons else ""
        helps = [f"pitboss pools resume {one}" for one in paused]
        return _no_workers(f"worker pool {listed(paused)} is paused{why}", "pool-paused", *helps)
    managers = sorted({view.manager.number for view in serving})
    return _no_workers(
        f"every manager with worker pool {names} is draining: it takes no tasks",
        "draining",
        *(f"pitboss drain --undo --manager {number}" for number in managers),
    )


def _none_ready(taking: Sequence[WorkerPoolView]) -> Gate:
    """No worker takes tasks now: it starts, it starts again, or a person must look."""
    names = sorted({view.pool.name for view in taking})
    workers = [worker for view in taking for worker in view.workers]
    given_up = [worker for worker in workers if worker.state is WorkerState.CRASHED]
    states = Counter(worker.state for worker in workers if worker.state is not WorkerState.STOPPED)
    all_given_up = bool(given_up) and len(given_up) == sum(states.values())
    too_large = next((worker for worker in workers if OVER_LIMIT in worker.why and not worker.processed), None)
    if too_large is not None:
        return _no_workers(
            f"the memory limit of pool {too_large.pool} is too low: {one_line(too_large.why)}",
            "memory-limit",
            f"raise memory of the pool {too_large.pool}, then pitboss pools restart {too_large.pool}",
            stuck=all_given_up,
        )
    if all_given_up:
        why = f": {one_line(given_up[0].why)}" if given_up[0].why else ""
        return _no_workers(
            f"every worker of pool {listed(names)} was given up{why}",
            "given-up",
            *(f"pitboss pools restart {name}" for name in names),
        )
    if states:
        told = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        return _no_workers(f"no worker of pool {listed(names)} is ready: {told}", "not-ready", stuck=False)
    if any(view.pool.wanted or (view.pool.most and not view.pool.least) for view in taking):
        return _no_workers(f"no worker of pool {listed(names)} runs; one is started", "not-ready", stuck=False)
    chosen = {view.pool.name for view in taking if view.pool.only}
    return _no_workers(
        f"worker pool {listed(names)} has no workers",
        "no-workers",
        *(f"pitboss pools scale {one} {'auto' if one in chosen else 1}" for one in names),
    )


def _no_memory(figure: str, host: str, until: Moment | None) -> Gate:
    return Gate(
        name="memory",
        what="Memory",
        passed=False,
        says=f"{host} has too little for it now",
        figure=figure,
        cause="memory",
        sentence=f"it waits for memory on {host}: {figure}",
        until=until,
    )
