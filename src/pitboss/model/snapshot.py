"""What a manager publishes about itself with each renewal of its session, so that any host can show it."""

from enum import StrEnum

import msgspec

from pitboss.model.duration import Moment, Span
from pitboss.model.sealed import MissingKey
from pitboss.model.stack import TaskStack

SHOWN_TASKS = 16


class WorkerState(StrEnum):
    """A worker as users see it. Crashed and stopped workers have no process; a crashed one was given up."""

    STARTING = "starting"
    IDLE = "idle"
    PROCESSING = "processing"
    DRAINING = "draining"
    RESTARTING = "restarting"
    CRASHED = "crashed"
    STOPPED = "stopped"


class CurrentTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that was given to a worker at `since`."""

    id: str
    handler: str
    since: Moment = 0


class WorkerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One worker of a pool: a slot that the manager keeps filled, and the process in it.

    `slot` is its number over all hosts, if its pool serves a queue with partitions. `crashes` counts for the slot;
    `processed` and the figures after it for the process. `rss` is the memory in bytes with child processes, `cpu` the
    cores used lately, `mean` the duration of a task. `why` says what is wrong, or what the worker waits for. `tasks`
    has at most `SHOWN_TASKS` of the `running` ones, which have begun. `room` is how many more it takes now: none while
    it runs a task alone, or pauses; None if its manager does not say so. `next_at` is when one that died starts again.
    """

    name: str
    pool: str = "default"
    slot: int | None = None
    state: WorkerState = WorkerState.IDLE
    pid: int = 0
    generation: int = 0
    started_at: Moment = 0
    active_at: Moment = 0
    running: int = 0
    room: int | None = None
    tasks: tuple[CurrentTask, ...] = ()
    crashes: int = 0
    processed: int = 0
    succeeded: int = 0
    failed: int = 0
    mean: Span = 0
    rss: int = 0
    cpu: float = 0.0
    why: str = ""
    next_at: Moment = 0


class PoolFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One worker pool of a manager. `wanted` workers, because of `why`; between `least` and `most` if it scales.
    `delay` is the configured pause after each task, its least and its most. `only`: the manager was started for the
    workers with these numbers (`pitboss up --only`); empty: for all. `memory` is the soft limit of a worker in bytes;
    0: it has none."""

    name: str
    queues: tuple[str, ...] | None = None
    concurrency: int = 0
    wanted: int = 0
    least: int = 0
    most: int = 0
    paused: bool = False
    paused_by: str | None = None
    paused_at: Moment | None = None
    paused_reason: str | None = None
    delay: tuple[Span, Span] = (0, 0)
    generation: int = 0
    why: str = ""
    only: tuple[int, ...] = ()
    memory: int = 0


class ServerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The HTTP server of a manager: starting, running, draining, restarting, crashed (given up), or stopped.

    `url` is where it listens, or should. `why` says why it was given up.
    """

    url: str = ""
    state: str = ""
    pid: int = 0
    restarts: int = 0
    why: str = ""


class DeliveryFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery process of a manager, with the `names` of its sources, and its `channels` of alerts. `why` says why
    it was given up. `worn_out`: it took the place of one that could not connect, and none of its sources has been
    connected since."""

    names: tuple[str, ...]
    state: str
    channels: tuple[str, ...] = ()
    pid: int = 0
    restarts: int = 0
    why: str = ""
    worn_out: bool = False


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A manager's app, worker pools and workers at the last renewal of its session.

    `logs` is the folder of its log files on its host; `cores` and `memory` are what the host has. `budget` is the
    memory for all tasks together, `in_use` what the running ones are expected to need, and `needs` the need of one task
    of each handler; they are published while a handler needs a large part of the budget. Queues that need a pool in
    `missing_keys` are left out of its claims, because it lacks the key of their secrets. `runs_tasks` is False for a
    manager without an app, which serves the HTTP API and looks after the store. `http` is its HTTP server, if any, and
    `delivery` its delivery process. `release` is a digest of the code of its `app`. `stacks` are those of running tasks
    that an operator asked for. `usual` is how long a run of a handler took before this manager started, on average.
    """

    target: str = ""
    version: str = ""
    queues: tuple[str, ...] | None = None
    concurrency: int = 0
    pools: tuple[PoolFigures, ...] = ()
    workers: tuple[WorkerFigures, ...] = ()
    draining: bool = False
    logs: str = ""
    cores: int = 0
    memory: int = 0
    budget: int = 0
    in_use: int = 0
    needs: dict[str, int] = {}
    term: int = 0
    missing_keys: tuple[MissingKey, ...] = ()
    runs_tasks: bool = True
    http: ServerFigures | None = None
    delivery: DeliveryFigures | None = None
    app: str = ""
    release: str = ""
    stacks: tuple[TaskStack, ...] = ()
    usual: dict[str, Span] = {}


def read(text: str | None) -> Snapshot | None:
    """The snapshot in a session; None if there is none, or one of a release that we cannot read."""
    try:
        return msgspec.json.decode(text, type=Snapshot) if text else None
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None
