"""Rows as values of the model and back."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pitboss.model.duration import Moment
from pitboss.model.limits import Window
from pitboss.model.partition import Partitioning
from pitboss.model.queue import HandlerInfo, Queue, QueueSettings
from pitboss.model.resource import Want
from pitboss.model.session import Lead, Session, SessionInfo
from pitboss.model.states import State
from pitboss.model.task import Attempt, Task, TaskError

STATES: Final = {state.value: state for state in State}
TASK_COLUMNS: Final = ", ".join(Task.__struct_fields__)
# The fields of `Task` are the columns, in this order; some of them need converting.
_FIELDS: Final = Task.__struct_fields__
_STATE, _TAGS, _ERROR, _CANCEL_ASKED, _WANT, _TRIED = map(
    _FIELDS.index, ("state", "tags", "error", "cancel_asked", "want", "tried")
)

_encode = msgspec.json.encode
_tags = msgspec.json.Decoder(tuple[str, ...])
_error = msgspec.json.Decoder(TaskError)
_rate = msgspec.json.Decoder(tuple[Window, ...])
_names = msgspec.json.Decoder(tuple[str, ...])
_want = msgspec.json.Decoder(Want)
_settings = msgspec.json.Decoder(QueueSettings)


def task_of(row: Sequence[Any]) -> Task:
    """A task from the columns `TASK_COLUMNS`."""
    values = list(row)
    values[_STATE] = STATES[values[_STATE]]
    values[_TAGS] = tags_of(values[_TAGS])
    values[_ERROR] = error_of(values[_ERROR])
    values[_CANCEL_ASKED] = bool(values[_CANCEL_ASKED])
    values[_WANT] = want_of(values[_WANT])
    values[_TRIED] = names_of(values[_TRIED])
    return Task(**dict(zip(_FIELDS, values, strict=True)))


def tags_of(text: str | None) -> tuple[str, ...]:
    return () if text is None else _tags.decode(text)


def tags_text(tags: tuple[str, ...]) -> str | None:
    return _encode(tags).decode() if tags else None


def want_of(text: str | None) -> Want | None:
    return None if text is None else _want.decode(text)


def want_text(want: Want | None) -> str | None:
    return None if want is None else _encode(want).decode()


def names_of(text: str | None) -> tuple[str, ...]:
    return () if text is None else _names.decode(text)


def names_text(names: Sequence[str]) -> str | None:
    return _encode(names).decode() if names else None


def error_of(text: str | None) -> TaskError | None:
    return None if text is None else _error.decode(text)


def error_text(error: TaskError | None) -> str | None:
    return None if error is None else _encode(error).decode()


def rate_of(text: str | None) -> tuple[Window, ...]:
    return () if text is None else _rate.decode(text)


def rate_text(rate: tuple[Window, ...]) -> str | None:
    return _encode(rate).decode() if rate else None


def attempt_of(row: Sequence[Any]) -> Attempt:
    claim, attempt, outcome, started_at, ended_at, session, worker, error = row
    return Attempt(
        claim=claim,
        attempt=attempt,
        outcome=outcome,
        started_at=started_at,
        ended_at=ended_at,
        session=session,
        worker=worker,
        error=error_of(error),
    )


def attempt_row(task: str, run: Attempt) -> tuple[object, ...]:
    """A run as `attempt_record` takes it."""
    return (
        task,
        run.claim,
        run.attempt,
        run.outcome,
        run.started_at,
        run.ended_at,
        run.session,
        run.worker,
        error_text(run.error),
    )


def queue_of(row: Sequence[Any], counts: dict[State, int], opens_at: Moment | None = None) -> Queue:
    name, paused, paused_by, paused_at, capacity, rate, resources, declared, limited, max_per_key, why = row
    settings = None if declared is None else _settings.decode(declared)
    return Queue(
        name=name,
        paused=bool(paused),
        paused_by=paused_by,
        paused_at=paused_at,
        paused_reason=why,
        capacity=capacity,
        rate=rate_of(rate),
        resources=resources,
        opens_at=opens_at,
        declared=settings,
        limited=names_of(limited),
        partitions=None if settings is None else settings.partitions,
        max_per_key=max_per_key,
        counts=counts,
    )


def queue_row(queue: Queue) -> tuple[object, ...]:
    """A queue as `queue_write` takes it."""
    return (
        queue.name,
        int(queue.paused),
        queue.paused_by,
        queue.paused_at,
        queue.capacity,
        rate_text(queue.rate),
        None if queue.declared is None else _encode(queue.declared).decode(),
        names_text(queue.limited),
        None if queue.partitions is None else queue.partitions.by,
        None if queue.partitions is None else _help(queue.partitions),
        queue.max_per_key,
        queue.paused_reason,
    )


def _help(spec: Partitioning) -> str:
    """Of which keys of other slots a slot takes tasks too."""
    if not spec.exclusive:
        return "all"
    return "ownerless" if spec.on_missing == "steal" else "none"


def handler_of(row: Sequence[Any]) -> HandlerInfo:
    name, queue, policy, schema, resources, remote, about, number, created_at, updated_at = row
    return HandlerInfo(
        name=name,
        queue=queue,
        policy=policy,
        schema=schema,
        resources=resources,
        remote=bool(remote),
        about=about,
        number=number,
        created_at=created_at,
        updated_at=updated_at,
    )


def session_of(row: Sequence[Any]) -> Session:
    number, host, boot_id, pid, kind, handlers, ttl, opened_at, expires_at, ended, snapshot = row
    info = SessionInfo(host=host, boot_id=boot_id, pid=pid, kind=kind, handlers=_names.decode(handlers), ttl=ttl)
    return Session(
        number=number,
        info=info,
        opened_at=opened_at,
        expires_at=expires_at,
        ended=bool(ended),
        snapshot=snapshot,
    )


def lead_of(row: Sequence[Any]) -> Lead:
    term, session, host = row
    return Lead(term=term, session=session, host=host)
