"""The members of a declared pool: adding, looking, switching on and off. Every call has an async twin."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol, TypeVar, Unpack

from pitboss.client.resource_desk import ResourceDesk
from pitboss.model.canonical import to_json
from pitboss.model.errors import InvalidInput
from pitboss.model.queue import checked_name
from pitboss.model.redact import Redactor
from pitboss.model.resource import NewResource, PoolRules, Resource, ResourceChange, checked_resource
from pitboss.model.resource_files import Row, read_rows
from pitboss.model.resource_keys import DeclaredResources, LimitKeys, checked_keys, limits_of
from pitboss.model.resource_urls import parted
from pitboss.secrets import KeyRing

T = TypeVar("T")
LIMIT = 15.0
_MANY_LIMIT = 120.0
_MAX_FIELDS = 64 * 1024
Work = Callable[[ResourceDesk], Coroutine[Any, Any, T]]


class Owner(Protocol):
    """The app that a pool was declared in."""

    redactor: Redactor

    def new_id(self) -> str: ...

    def ring(self) -> KeyRing: ...

    def rules_of(self, declared: DeclaredResources) -> PoolRules: ...

    def ask(self, work: Callable[[Any], Coroutine[Any, Any, T]], *, limit: float, what: str) -> T: ...

    async def aask(self, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T: ...

    def begin(self, work: Callable[[Any], Coroutine[Any, Any, T]]) -> "Future[T]": ...


class Members:
    """What a pool can be asked about its members."""

    def __init__(self, owner: Owner, declared: DeclaredResources) -> None:
        self._owner, self.declared = owner, declared
        self.name = declared.name

    def add(
        self,
        name: str,
        fields: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
        *,
        labels: Iterable[str] = (),
        weight: int = 100,
        **limits: Unpack[LimitKeys],
    ) -> bool:
        """Add a member, or change the one of that name; True if it is new. Secrets are sealed here, before they leave.

        User and password in the field `url` are sealed too. Limits of its own (`per_hour=20` …) replace all of the
        pool's for this member.
        """
        new = self._new(name, fields, secrets, labels, weight, limits)
        return bool(self._ask(self._adding([new]), what="adding a member"))

    async def aadd(
        self,
        name: str,
        fields: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
        *,
        labels: Iterable[str] = (),
        weight: int = 100,
        **limits: Unpack[LimitKeys],
    ) -> bool:
        """As `add`, for async callers."""
        new = self._new(name, fields, secrets, labels, weight, limits)
        return bool(await self._aask(self._adding([new])))

    def add_many(self, members: Iterable[Mapping[str, Any]]) -> int:
        """Add members, each given by the arguments of `add` by name; how many are new."""
        return self._ask(self._adding(self._many(members)), what="adding members", limit=_MANY_LIMIT)

    async def aadd_many(self, members: Iterable[Mapping[str, Any]]) -> int:
        """As `add_many`, for async callers."""
        return await self._aask(self._adding(self._many(members)))

    def load(self, path: str | Path, *, labels: Iterable[str] = ()) -> int:
        """Add the members of a file: `host:port:user:password` lines, URLs, or CSV with a header. How many are new."""
        return self._ask(self._adding(self._rows(path, labels)), what="adding members", limit=_MANY_LIMIT)

    async def aload(self, path: str | Path, *, labels: Iterable[str] = ()) -> int:
        """As `load`, for async callers."""
        return await self._aask(self._adding(self._rows(path, labels)))

    def members(self, *names: str) -> list[Resource]:
        """The members (of these names, or all) as they stand, with their secrets sealed."""
        return self._ask(self._listing(names), what="reading members")

    async def amembers(self, *names: str) -> list[Resource]:
        """As `members`, for async callers."""
        return await self._aask(self._listing(names))

    def enable(self, *names: str) -> list[str]:
        """Let these members be used again (none named: all); the names of those that there are."""
        return self._ask(self._changing(names, ResourceChange(enabled=True)), what="changing members")

    async def aenable(self, *names: str) -> list[str]:
        """As `enable`, for async callers."""
        return await self._aask(self._changing(names, ResourceChange(enabled=True)))

    def disable(self, *names: str, reason: str | None = None) -> list[str]:
        """Give these members to nobody until they are enabled (none named: all). What holds one goes on."""
        return self._ask(self._changing(names, ResourceChange(enabled=False, reason=reason)), what="changing members")

    async def adisable(self, *names: str, reason: str | None = None) -> list[str]:
        """As `disable`, for async callers."""
        return await self._aask(self._changing(names, ResourceChange(enabled=False, reason=reason)))

    def reset(self, *names: str) -> list[str]:
        """Forget failures, cooldown and blacklist (none named: of all); never the uses that limits count."""
        return self._ask(self._changing(names, ResourceChange(reset=True)), what="changing members")

    async def areset(self, *names: str) -> list[str]:
        """As `reset`, for async callers."""
        return await self._aask(self._changing(names, ResourceChange(reset=True)))

    def remove(self, *names: str) -> list[str]:
        """Take these members out of the pool. What holds one goes on."""
        return self._ask(self._changing(_named(names), None), what="removing members")

    async def aremove(self, *names: str) -> list[str]:
        """As `remove`, for async callers."""
        return await self._aask(self._changing(_named(names), None))

    def reseal(self) -> int:
        """Seal every secret with the newest key; how many members were changed. For after a new key was put first."""
        return self._ask(self._resealing, what="sealing secrets again", limit=_MANY_LIMIT)

    async def areseal(self) -> int:
        """As `reseal`, for async callers."""
        return await self._aask(self._resealing)

    def sealed(self, member: str, secrets: Mapping[str, str]) -> dict[str, str]:
        """Secrets as the store may have them."""
        ring = self._owner.ring()
        for name, value in secrets.items():
            if not isinstance(value, str):
                raise InvalidInput(
                    f'the secret "{name}" of {self.name}/{member} is not text',
                    why="secrets are sealed as text",
                    fix="make it text, for example JSON",
                )
            self._owner.redactor.add(value)
        return {name: ring.seal(value, (self.name, member, name)) for name, value in secrets.items()}

    def _new(
        self,
        name: str,
        fields: Mapping[str, Any] | None,
        secrets: Mapping[str, str] | None,
        labels: Iterable[str],
        weight: int,
        limits: Mapping[str, Any],
    ) -> NewResource:
        own = limits_of(checked_keys(limits, whose="a member")) if limits else None
        checked_name(name, "resource")
        whose = f"{self.name}/{name}"
        open_fields, closed = parted(fields or {}, secrets or {}, whose)
        return checked_resource(
            NewResource(
                name=name,
                fields=to_json(open_fields, what=f"fields of {whose}", max_bytes=_MAX_FIELDS),
                secrets=self.sealed(name, closed),
                labels=(labels,) if isinstance(labels, str) else tuple(labels),
                weight=weight,
                limits=own,
            )
        )

    def _many(self, members: Iterable[Mapping[str, Any]]) -> list[NewResource]:
        return [self._one(**member) for member in members]

    def _one(
        self,
        name: str,
        fields: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
        labels: Iterable[str] = (),
        weight: int = 100,
        **limits: Any,
    ) -> NewResource:
        return self._new(name, fields, secrets, labels, weight, limits)

    def _rows(self, path: str | Path, labels: Iterable[str]) -> list[NewResource]:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(
                f"{path} cannot be read",
                why=getattr(error, "strerror", None) or "it is not text in UTF-8",
                fix="check the path and the rights of the file",
            ) from error
        more = (labels,) if isinstance(labels, str) else tuple(labels)
        return [self._row(row, more) for row in read_rows(text, str(path))]

    def _row(self, row: Row, labels: tuple[str, ...]) -> NewResource:
        return self._new(row.name, row.fields, row.secrets, (*row.labels, *labels), row.weight, {})

    def _adding(self, members: list[NewResource]) -> Work[int]:
        async def work(desk: ResourceDesk) -> int:
            await desk.introduce(self.name, self._owner.rules_of(self.declared))
            return await desk.add(self.name, members)

        return work

    def _listing(self, names: tuple[str, ...]) -> Work[list[Resource]]:
        return lambda desk: desk.members(self.name, names or None)

    def _changing(self, names: tuple[str, ...], change: ResourceChange | None) -> Work[list[str]]:
        return lambda desk: desk.change(self.name, names or None, change)

    async def _resealing(self, desk: ResourceDesk) -> int:
        ring, changed = self._owner.ring(), 0
        for member in await desk.members(self.name):
            fresh = {key: ring.reseal(text, (self.name, member.name, key)) for key, text in member.secrets.items()}
            if fresh != member.secrets:
                await desk.change(self.name, [member.name], ResourceChange(secrets=fresh))
                changed += 1
        return changed

    def _ask(self, work: Work[T], *, what: str, limit: float = LIMIT) -> T:
        return self._owner.ask(_at_desk(work), limit=limit, what=what)

    async def _aask(self, work: Work[T]) -> T:
        return await self._owner.aask(_at_desk(work))

    def _begin(self, work: Work[T]) -> "Future[T]":
        return self._owner.begin(_at_desk(work))


def _at_desk(work: Work[T]) -> Callable[[Any], Coroutine[Any, Any, T]]:
    async def at_desk(client: Any) -> T:
        return await work(ResourceDesk(client.store, client.clock))

    return at_desk


def _named(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise InvalidInput(
            "it is not said which members to remove", why="removing all by accident is too easy", fix="name them"
        )
    return names
