"""Tasks that are created by name, with the rules of their type: schema, deduplication, repeated requests."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from pitboss.client.options import Options
from pitboss.engines.access_protocol import Access
from pitboss.engines.protocol import Engine
from pitboss.model.canonical import Json
from pitboss.model.duration import SECOND, Span
from pitboss.model.errors import InvalidInput
from pitboss.model.ids import TaskId
from pitboss.model.new_task import new_task
from pitboss.model.task import NewTask, Placed
from pitboss.operate.task_types import Dedupe, TaskType

# A key that is never free again; a hundred years fit every store.
_FOREVER: Span = 100 * 365 * 24 * 3600 * SECOND


class WantedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task to be created. `dedupe` None: as its type says. `options` are those of an enqueue."""

    type: TaskType
    params: Mapping[str, Any]
    queue: str | None = None
    dedupe: Dedupe | None = None
    dedupe_key: str | None = None
    options: dict[str, Any] = {}


class CreatedTask(NamedTuple):
    """What was asked for, and what there is now."""

    task: NewTask
    placed: Placed
    dedupe_key: str | None


class KeyReused(InvalidInput):
    """The same Idempotency-Key with another body."""

    code = "key-reused"


def make_task(wanted: WantedTask, task_id: TaskId) -> tuple[NewTask, str | None]:
    """The task, and the key by which a second one like it is recognised."""
    info = wanted.type.info
    if not wanted.type.about.active:
        raise InvalidInput(
            "Task type is not active",
            why=f'"{info.name}" was made inactive',
            fix="register it again: POST /api/task-types/register",
        )
    if info.remote and wanted.queue not in (None, info.queue):
        raise InvalidInput(
            f'tasks of type "{info.name}" cannot be put into queue "{wanted.queue}"',
            why=f"remote workers look for them in {info.queue}",
            fix='leave "queue" out',
        )
    if info.remote and wanted.options.get("timeout") is not None:
        raise InvalidInput(
            "a task of a remote type has no timeout of its own",
            why="a claim lasts as long as the type's timeout, or as the worker's claim_timeout says",
            fix='leave "timeout" out, and set it where the type is registered',
        )
    try:
        params = wanted.type.check(wanted.params)
    except InvalidInput as error:
        raise InvalidInput("Parameter validation failed", why=f"{error.what}: {error.why}", fix=error.fix) from error
    key, period = _key(wanted, params)
    options = Options().changed(key=key, **wanted.options)
    if period is not None:
        options = msgspec.structs.replace(options, key_period=period)
    return new_task(info, params, task_id, options, queue=wanted.queue), key


async def create_tasks(
    store: Engine,
    wanted: Sequence[WantedTask],
    make_id: Callable[[], TaskId],
    ids: Sequence[TaskId] | None = None,
) -> list[CreatedTask]:
    """Create all of them, or none if one is wrong. `ids` are those of an earlier request that is repeated."""
    made = [make_task(one, ids[number] if ids else make_id()) for number, one in enumerate(wanted)]
    placed = await store.put([task for task, _ in made])
    return [CreatedTask(task, one, key) for (task, key), one in zip(made, placed, strict=True)]


async def remembered_ids(store: Access, key: str, body: object, ids: Sequence[TaskId]) -> tuple[TaskId, ...]:
    """The ids for a request under this key: these, or those of the first request, if this one repeats it."""
    digest = sha256(msgspec.json.encode(body, order="sorted")).hexdigest()
    known = await store.remember(key, digest, ids)
    if known.body != digest:
        raise KeyReused(
            "This Idempotency-Key was used with another request",
            why="a key stands for one request, so that repeating it is safe",
            fix="make a new key for each new request",
        )
    return known.ids


def _key(wanted: WantedTask, params: Json) -> tuple[str | None, Span | None]:
    how = wanted.dedupe or wanted.type.about.dedupe
    if wanted.dedupe_key is None and how == "none":
        return None, None
    name = wanted.type.info.name
    key = wanted.dedupe_key or sha256(f"{name}:{params}".encode()).hexdigest()
    return key, _FOREVER if how == "forever" else None
