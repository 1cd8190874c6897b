"""What a manager tells about itself with each renewal of its session, for people who look from elsewhere."""

import msgspec


class WorkerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One worker process that is ready. `rss` is its memory in bytes, 0 before it has told."""

    name: str
    pid: int = 0
    running: int = 0
    rss: int = 0


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A manager's app and workers, as they were when its session was last renewed. `queues` None is all of them."""

    target: str = ""
    queues: tuple[str, ...] | None = None
    concurrency: int = 0
    workers: tuple[WorkerFigures, ...] = ()


def read(text: str | None) -> Snapshot | None:
    """The snapshot that a session carries; None if it carries none, or one of a release that we do not know."""
    try:
        return msgspec.json.decode(text, type=Snapshot) if text else None
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None
