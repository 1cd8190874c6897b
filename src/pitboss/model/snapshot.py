"""What a manager tells about itself with each renewal of its session, for people who look from elsewhere."""

from enum import StrEnum

import msgspec

from pitboss.model.duration import Moment, Span

SHOWN_TASKS = 16


class WorkerState(StrEnum):
    """A worker as users see it. Crashed and stopped ones have no process; a crashed one was given up."""

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
    """One worker of a pool: a place that is kept filled, and the process in it.

    `crashes` are those of the place; `processed` and what follows are of the process. `rss` is its memory with its
    child processes in bytes, `cpu` the cores that it used lately, `mean` how long a task took. `why` says what is
    wrong, or what it waits for. `tasks` are at most `SHOWN_TASKS` of the `running` ones.
    """

    name: str
    pool: str = "default"
    state: WorkerState = WorkerState.IDLE
    pid: int = 0
    generation: int = 0
    started_at: Moment = 0
    active_at: Moment = 0
    running: int = 0
    tasks: tuple[CurrentTask, ...] = ()
    crashes: int = 0
    processed: int = 0
    succeeded: int = 0
    failed: int = 0
    mean: Span = 0
    rss: int = 0
    cpu: float = 0.0
    why: str = ""


class PoolFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One pool of a manager. `wanted` workers, because of `why`; between `least` and `most` if it scales."""

    name: str
    queues: tuple[str, ...] | None = None
    concurrency: int = 0
    wanted: int = 0
    least: int = 0
    most: int = 0
    paused: bool = False
    generation: int = 0
    why: str = ""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A manager's app, pools and workers, as they were when its session was last renewed.

    `logs` is the folder of its log files on its host; `cores` and `memory` are what the host has.
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
    term: int = 0


def read(text: str | None) -> Snapshot | None:
    """The snapshot that a session carries; None if it carries none, or one of a release that we do not know."""
    try:
        return msgspec.json.decode(text, type=Snapshot) if text else None
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None
