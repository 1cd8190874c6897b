"""Task types: what remote workers run. They are handlers in the same registry, registered over HTTP."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from pitboss.client.schema import checker, compiled
from pitboss.engines.protocol import Handlers, Store
from pitboss.model.canonical import Json, to_json
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.errors import InvalidInput, NotFound, Refused
from pitboss.model.filter import by
from pitboss.model.policy import Backoff, Policy
from pitboss.model.queue import HandlerInfo, checked_name, is_reserved
from pitboss.model.states import State
from pitboss.operate.lookup import closest
from pitboss.operate.schema_cost import refuse_costly

Dedupe = Literal["unfinished", "forever", "none"]
CLAIM_LASTS: Span = 300 * SECOND
MAX_ATTEMPTS = 3
# How old the registry may be that a server works with. Another server may have registered a type since.
_FRESH: Span = SECOND


class TypeAbout(msgspec.Struct, frozen=True, kw_only=True):
    """What the registry knows of a task type beyond its queue, policy and schema.

    Tasks that were sent by name before the type was known are in `other_queues`: workers look for them there too.
    """

    version: str = ""
    active: bool = True
    dedupe: Dedupe = "unfinished"
    description: str = ""
    other_queues: tuple[str, ...] = ()


class NewType(msgspec.Struct, frozen=True, kw_only=True):
    """A task type as it is registered. None keeps what is known, or the default of a new type."""

    name: str
    version: str
    schema: Mapping[str, Any]
    queue: str | None = None
    max_attempts: int | None = None
    timeout: Span | None = None
    backoff: Span | None = None
    dedupe: Dedupe | None = None
    description: str | None = None
    activate: bool = True

    def info(self, before: "TaskType | None" = None) -> HandlerInfo:
        """As it is registered. `before` is what is known under its name."""
        name = checked_name(self.name, "task type")
        policy = Policy(max_attempts=MAX_ATTEMPTS) if before is None else before.policy
        if self.max_attempts is not None:
            policy = msgspec.structs.replace(policy, max_attempts=self.max_attempts)
        if self.timeout is not None:
            policy = msgspec.structs.replace(policy, timeout=self.timeout)
        if self.backoff is not None:
            cap = max(self.backoff, Backoff().cap)
            policy = msgspec.structs.replace(policy, backoff=Backoff(base=self.backoff, cap=cap))
        known = TypeAbout() if before is None else before.about
        about = TypeAbout(
            version=self.version,
            active=self.activate or known.active,
            dedupe=known.dedupe if self.dedupe is None else self.dedupe,
            description=known.description if self.description is None else self.description,
            other_queues=known.other_queues,
        )
        return HandlerInfo(
            name=name,
            queue=checked_name(self.queue or (name if before is None else before.info.queue), "queue"),
            policy=msgspec.json.encode(policy).decode(),
            schema=_checked_schema(self.schema),
            remote=True,
            about=msgspec.json.encode(about).decode(),
        )


class TaskType(NamedTuple):
    """A registered type, or a Python handler, with everything that is needed to make and to judge its tasks."""

    info: HandlerInfo
    about: TypeAbout
    policy: Policy
    check: Callable[[Mapping[str, Any]], Json]

    @property
    def claim_lasts(self) -> Span:
        return self.policy.timeout or CLAIM_LASTS

    @property
    def queues(self) -> tuple[str, ...]:
        """As `HandlerInfo.queues`, without reading JSON for each claim."""
        return self.info.queue, *self.about.other_queues


class TaskTypes:
    """The registry as one process knows it, read again when it is older than a second."""

    def __init__(self, store: Store, now: Callable[[], Moment]) -> None:
        self._store, self._now = store, now
        self._read_at: Moment | None = None
        # Before the first reading nothing is known, so all callers wait for it.
        self._first = asyncio.Lock()
        self._known: dict[str, TaskType] = {}

    @property
    def remote(self) -> list[TaskType]:
        return [one for one in self._known.values() if one.info.remote]

    def policy(self, name: str) -> Policy:
        known = self._known.get(name)
        return Policy() if known is None else known.policy

    async def all(self) -> dict[str, TaskType]:
        """All types by name. If they are old, one caller reads them again; the others go on with what is known."""
        now = self._now()
        if self._read_at is None:
            async with self._first:
                if self._read_at is None:
                    await self.read()
        elif now - self._read_at >= _FRESH:
            self._read_at = now
            await self.read()
        return self._known

    async def read(self) -> None:
        """Read the registry; types that did not change keep their compiled schema."""
        began, found = self._now(), {}
        for info in await self._store.handlers():
            if is_reserved(info.name):
                continue
            known = self._known.get(info.name)
            found[info.name] = known if known is not None and known.info == info else _task_type(info)
        self._known, self._read_at = found, began

    async def find(self, name: str) -> TaskType:
        """The type of this name; read anew if it is not known yet."""
        if name not in await self.all():
            await self.read()
        if name not in self._known:
            raise _unknown(name, self._known)
        return self._known[name]

    async def register(self, store: Handlers, new: NewType) -> tuple[TaskType, bool]:
        """Add or replace a task type; whether it is new."""
        await self.read()
        before = self._known.get(new.name)
        info = new.info(before)
        if before is not None and not before.info.remote:
            raise Refused(
                f'"{info.name}" is a task of a Python app',
                why="its handler runs in the workers of Pitboss; a task type of the same name would take its place",
                fix="choose another name",
            )
        if before is not None and before.info.queue != info.queue:
            raise Refused(
                f'the queue of task type "{info.name}" cannot change',
                why=f"its tasks may wait in {before.info.queue}, where no worker would look any more",
                fix=f'leave "queue" out, say "{before.info.queue}", or register it under another name',
            )
        if before is None:
            info = await self._with_other_queues(info)
        if before is None or info.registered(before.info, 0, -1) != before.info:
            await store.register([info])
            await self.read()
        return self._known[info.name], before is None

    async def _with_other_queues(self, info: HandlerInfo) -> HandlerInfo:
        """A new type with the queues in which tasks of it are held: registering it releases them where they are."""
        holding = [
            one.name for one in await self._store.queues() if one.counts.get(State.HELD) and one.name != info.queue
        ]
        wanted = [(name, by(state=State.HELD, task=info.name, queue=name)) for name in holding]
        found = [name for name, held in wanted if (await self._store.find(held, limit=1)).tasks]
        about = msgspec.structs.replace(msgspec.json.decode(info.about, type=TypeAbout), other_queues=tuple(found))
        return msgspec.structs.replace(info, about=msgspec.json.encode(about).decode())

    async def deactivate(self, store: Handlers, name: str) -> TaskType:
        """No new tasks of this type from now on; those that wait go on."""
        known = await self.find(name)
        if not known.info.remote:
            raise Refused(f'"{name}" is a task of a Python app', why="its app declares it", fix="change the app")
        about = msgspec.json.encode(msgspec.structs.replace(known.about, active=False)).decode()
        await store.register([msgspec.structs.replace(known.info, about=about)])
        await self.read()
        return self._known[name]


def _task_type(info: HandlerInfo) -> TaskType:
    about = msgspec.json.decode(info.about, type=TypeAbout) if info.remote else TypeAbout(dedupe="none")
    return TaskType(info, about, msgspec.json.decode(info.policy, type=Policy), checker(info))


def _checked_schema(schema: Mapping[str, Any]) -> Json:
    text = to_json(dict(schema), what="param_schema", max_bytes=100_000)
    refuse_costly(schema)
    try:
        compiled(schema)
    except ValueError as error:
        raise InvalidInput(
            "Invalid JSON schema format", why=str(error).partition("\n")[0][:300], fix="send a valid JSON Schema"
        ) from error
    return text


def _unknown(name: str, known: Mapping[str, TaskType]) -> NotFound:
    close = closest(name, known)
    hint = f'; did you mean "{close}"?' if close else ""
    return NotFound(
        "Task type not found",
        why=f'no type "{name[:80]}" is registered{hint}',
        fix="register it: POST /api/task-types/register",
    )
