"""Values as PostgreSQL reads them, and its rows as values.

Lists are sent as array literals made here: the driver's own way of writing lists costs more than the insert itself. A
column without any value is sent as an empty array: `unnest` fills it with NULL.
"""

import re
from collections.abc import Iterable, Sequence

import msgspec

from pitboss.engines.postgres.script import Row
from pitboss.model.duration import Moment
from pitboss.model.lifecycle import due_at
from pitboss.model.limits import Window
from pitboss.model.queue import HandlerInfo, Queue, QueueSettings
from pitboss.model.resource import Leased, Want
from pitboss.model.session import Session, SessionInfo
from pitboss.model.states import State
from pitboss.model.task import Attempt, Claim, Task, TaskError, Token

_decode_error = msgspec.json.Decoder(TaskError).decode
_encode = msgspec.json.Encoder().encode
_decode_settings = msgspec.json.Decoder(QueueSettings).decode
_decode_counts = msgspec.json.Decoder(dict[State, int]).decode
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
want_of = msgspec.json.Decoder(Want).decode
STATES = {state.value: state for state in State}
# How many columns `claim_columns` has, and how many tell a queue's settings.
CLAIM_COLUMNS = 19
SETTINGS_COLUMNS = 11


def texts(values: Sequence[str | None]) -> str:
    """An array literal of texts."""
    known = [value for value in values if value is not None]
    if not known:
        return "{}"
    # Quote all at once, joined by a character that no text in a store has.
    joined = "\0".join(known)
    if len(known) == len(values) and joined.count("\0") == len(values) - 1:
        return "{" + _quoted(joined).replace("\0", '","') + "}"
    return "{" + ",".join(["NULL" if value is None else _quoted(value) for value in values]) + "}"


def numbers(values: Sequence[int | None]) -> str:
    """An array literal of whole numbers."""
    if values.count(None) == len(values):
        return "{}"
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def flags(values: Iterable[bool]) -> str:
    """An array literal of truth values."""
    return "{" + ",".join("t" if value else "f" for value in values) + "}"


def names(values: Iterable[str]) -> str:
    """An array literal of distinct texts in order: all writers must lock them in the same order."""
    return texts(sorted(set(values)))


def known_id(text: str) -> bool:
    """Whether a text can be the id of a task: canonical UUID text."""
    return _UUID.match(text) is not None


def want_text(want: Want | None) -> str | None:
    return None if want is None else _encode(want).decode()


def error_text(error: TaskError | None) -> str | None:
    return None if error is None else _encode(error).decode()


def task(row: Row) -> Task:
    """A task from `task_columns`."""
    fields = dict(zip(Task.__struct_fields__, row, strict=True))
    fields["state"] = STATES[fields["state"]]
    fields["tags"] = tuple(fields["tags"] or ())
    fields["error"] = None if fields["error"] is None else _decode_error(fields["error"])
    fields["want"] = None if fields["want"] is None else want_of(fields["want"])
    fields["tried"] = tuple(fields["tried"] or ())
    return Task(**fields)


def attempt(row: Row) -> Attempt:
    claim, number, outcome, started_at, ended_at, session, worker, error = row
    return Attempt(
        claim=claim,
        attempt=number,
        outcome=outcome,
        started_at=started_at,
        ended_at=ended_at,
        session=session,
        worker=worker,
        error=None if error is None else _decode_error(error),
    )


def claim(
    row: Row, session: int, now: Moment, slot: int, *, ends: Moment | None = None, leased: Leased | None = None
) -> Claim:
    """A claim from `claim_columns`. `ends` is its own time limit."""
    number, claim_number, handler, queue, params, attempts, priority, max_attempts, timeout = row[:9]
    losses, crashes, created_at, expires_at, parent, tags, batch, rotations, meta, run_at = row[9:CLAIM_COLUMNS]
    return Claim(
        id=number,
        token=Token(session, claim_number),
        handler=handler,
        queue=queue,
        params=params,
        attempt=attempts + 1,
        priority=priority,
        max_attempts=max_attempts,
        timeout=timeout,
        losses=losses,
        crashes=crashes,
        created_at=created_at,
        claimed_at=now,
        expires_at=expires_at,
        parent=parent,
        tags=tuple(tags or ()),
        slot=slot,
        leased=leased,
        batch=batch,
        rotations=rotations,
        claim_expires_at=ends,
        meta=meta,
        due_at=due_at(
            created_at,
            run_at,
            claim=claim_number,
            attempts=attempts,
            losses=losses,
            rotations=rotations,
            batch=batch,
        ),
    )


def session_of(row: Row) -> Session:
    number, host, boot_id, pid, kind, handlers, ttl, opened_at, expires_at, ended, snapshot = row
    info = SessionInfo(host=host, boot_id=boot_id, pid=pid, kind=kind, handlers=tuple(handlers), ttl=ttl)
    return Session(number=number, info=info, opened_at=opened_at, expires_at=expires_at, ended=ended, snapshot=snapshot)


def queue(row: Row) -> Queue:
    """A queue from `queue_list`: its settings, then what is known of it now."""
    resources, opens_at, figures = row[SETTINGS_COLUMNS:]
    return msgspec.structs.replace(
        queue_settings(row[:SETTINGS_COLUMNS]), resources=resources, opens_at=opens_at, counts=_decode_counts(figures)
    )


def queue_settings(row: Row) -> Queue:
    name, paused, paused_by, paused_at, capacity, counts, spans, text, limited, max_per_key, why = row
    declared = None if text is None else _decode_settings(text)
    return Queue(
        name=name,
        paused=paused,
        paused_by=paused_by,
        paused_at=paused_at,
        paused_reason=why,
        capacity=capacity,
        rate=tuple(Window(count, per) for count, per in zip(counts or (), spans or (), strict=True)),
        declared=declared,
        limited=tuple(limited),
        partitions=None if declared is None else declared.partitions,
        max_per_key=max_per_key,
    )


def settings_text(settings: QueueSettings | None) -> str | None:
    return None if settings is None else _encode(settings).decode()


def handler(row: Row) -> HandlerInfo:
    return HandlerInfo(**dict(zip(HandlerInfo.__struct_fields__, row, strict=True)))


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
