"""The members of a declared pool: adding, listing, switching on and off. Every call has an async twin."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar, Unpack

from msgspec.structs import replace

from pitboss.client.app_core import LIMIT, AppCore
from pitboss.client.resource_client import ResourceClient
from pitboss.model.canonical import to_json
from pitboss.model.errors import InvalidInput
from pitboss.model.resource import NewResource, Resource, ResourceChange, checked_resource, no_such_member
from pitboss.model.resource_files import Row, checked_member_name, read_rows
from pitboss.model.resource_keys import DeclaredResources, LimitKeys, checked_keys, limits_of
from pitboss.model.resource_urls import parted

T = TypeVar("T")
_MANY_LIMIT = 120.0
_MAX_FIELDS = 64 * 1024
# A member, and its secrets as text.
_Unsealed = tuple[NewResource, Mapping[str, str]]
Work = Callable[[ResourceClient], Coroutine[Any, Any, T]]


class Members:
    """The calls of a pool that are about its members."""

    def __init__(self, app: AppCore, declared: DeclaredResources) -> None:
        self._app, self.declared = app, declared
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
        """Add a member, or change the one of that name; True if it is new.

        Secrets are sealed in this process, also user and password in the field `url`. Limits of its own
        (`per_hour=20` …) replace all limits of the pool for this member.
        """
        new = self._new(name, fields, secrets, labels, weight, limits)
        return bool(self.run(self._add([new]), what="adding a member"))

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
        return bool(await self._add([new]))

    def add_many(self, members: Iterable[Mapping[str, Any]]) -> int:
        """Add members, each given by the arguments of `add` by name; how many are new."""
        return self.run(self._add(self._many(members)), what="adding members", limit=_MANY_LIMIT)

    async def aadd_many(self, members: Iterable[Mapping[str, Any]]) -> int:
        """As `add_many`, for async callers."""
        return await self._add(self._many(members))

    def load(self, path: str | Path, *, labels: Iterable[str] = ()) -> int:
        """Add the members of a file: `host:port:user:password` lines, URLs, or CSV with a header. How many are new."""
        return self.run(self._add(self._rows(path, labels)), what="adding members", limit=_MANY_LIMIT)

    async def aload(self, path: str | Path, *, labels: Iterable[str] = ()) -> int:
        """As `load`, for async callers."""
        return await self._add(self._rows(path, labels))

    def members(self, *names: str) -> list[Resource]:
        """The members (of these names, or all) as they stand, with their secrets sealed."""
        return self.run(self.amembers(*names), what="reading members")

    async def amembers(self, *names: str) -> list[Resource]:
        """As `members`, for async callers."""
        return await self.aask(lambda resources: resources.members(self.name, names or None))

    def enable(self, *names: str, reason: str | None = None) -> list[str]:
        """Let these members be used again (none named: all); their names. `NotFound` if the pool lacks one of them."""
        return self.run(self.aenable(*names, reason=reason), what="changing members")

    async def aenable(self, *names: str, reason: str | None = None) -> list[str]:
        """As `enable`, for async callers."""
        return await self._change(names, ResourceChange(enabled=True, reason=reason))

    def disable(self, *names: str, reason: str | None = None) -> list[str]:
        """Stop using these members until they are enabled (none named: all). Tasks that hold one go on."""
        return self.run(self.adisable(*names, reason=reason), what="changing members")

    async def adisable(self, *names: str, reason: str | None = None) -> list[str]:
        """As `disable`, for async callers."""
        return await self._change(names, ResourceChange(enabled=False, reason=reason))

    def reset(self, *names: str) -> list[str]:
        """Forget failures, cooldown and blacklist (none named: of all); never the uses that limits count."""
        return self.run(self.areset(*names), what="changing members")

    async def areset(self, *names: str) -> list[str]:
        """As `reset`, for async callers."""
        return await self._change(names, ResourceChange(reset=True))

    def remove(self, *names: str) -> list[str]:
        """Take these members out of the pool. Tasks that hold one go on."""
        return self.run(self.aremove(*names), what="removing members")

    async def aremove(self, *names: str) -> list[str]:
        """As `remove`, for async callers."""
        return await self._change(_named(names), None)

    def reseal(self) -> int:
        """Seal every secret with the newest key; how many members were changed. For use after a key was added."""
        return self.run(self.areseal(), what="sealing secrets again", limit=_MANY_LIMIT)

    async def areseal(self) -> int:
        """As `reseal`, for async callers."""
        return await self.acts("resources reseal", self.name, self._reseal)

    def sealed(self, member: str, secrets: Mapping[str, str]) -> dict[str, str]:
        """The secrets sealed, ready for the store."""
        ring = self._app.ring()
        for name, value in secrets.items():
            if not isinstance(value, str):
                raise InvalidInput(
                    f'the secret "{name}" of {self.name}/{member} is not text',
                    why="secrets are sealed as text",
                    fix="make it text, for example JSON",
                )
            self._app.redactor.add(value)
        return {name: ring.seal(value, (self.name, member, name)) for name, value in secrets.items()}

    def _new(
        self,
        name: str,
        fields: Mapping[str, Any] | None,
        secrets: Mapping[str, str] | None,
        labels: Iterable[str],
        weight: int,
        limits: Mapping[str, Any],
    ) -> _Unsealed:
        own = limits_of(checked_keys(limits, whose="a member")) if limits else None
        checked_member_name(name)
        whose = f"{self.name}/{name}"
        open_fields, closed = parted(fields or {}, secrets or {}, whose)
        new = NewResource(
            name=name,
            fields=to_json(open_fields, what=f"fields of {whose}", max_bytes=_MAX_FIELDS),
            labels=(labels,) if isinstance(labels, str) else tuple(labels),
            weight=weight,
            limits=own,
        )
        return checked_resource(new), closed

    def _many(self, members: Iterable[Mapping[str, Any]]) -> list[_Unsealed]:
        return [self._one(**member) for member in members]

    def _one(
        self,
        name: str,
        fields: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
        labels: Iterable[str] = (),
        weight: int = 100,
        **limits: Any,
    ) -> _Unsealed:
        return self._new(name, fields, secrets, labels, weight, limits)

    def _rows(self, path: str | Path, labels: Iterable[str]) -> list[_Unsealed]:
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

    def _row(self, row: Row, labels: tuple[str, ...]) -> _Unsealed:
        return self._new(row.name, row.fields, row.secrets, (*row.labels, *labels), row.weight, {})

    async def _add(self, members: list[_Unsealed]) -> int:
        async def work(resources: ResourceClient) -> int:
            if any(closed for _, closed in members) and self._app.ring().keyless:
                await resources.check_new_key(self._app.ring().where)
            sealed = [checked_resource(replace(new, secrets=self.sealed(new.name, own))) for new, own in members]
            await resources.introduce(self.name, self._app.keys_of(self.declared))
            return await resources.add(self.name, sealed)

        one, many = f"{self.name}/{members[0][0].name}" if members else self.name, len(members) > 1
        if many:
            return await self.acts("resources import", self.name, work, members=len(members))
        return await self.acts("resources add", one, work)

    async def _change(self, names: tuple[str, ...], change: ResourceChange | None) -> list[str]:
        """An unknown name is an error, and nothing is changed."""

        async def work(resources: ResourceClient) -> list[str]:
            known = {member.name for member in await resources.members(self.name, names)} if names else set()
            if not known.issuperset(names):
                every = [member.name for member in await resources.members(self.name)]
                raise no_such_member(self.name, [name for name in names if name not in known], every)
            return await resources.change(self.name, names or None, change)

        done = _change_name(change)
        return await self.acts(
            f"resources {done}", " ".join((self.name, *names)), work, reason=change and change.reason
        )

    async def _reseal(self, resources: ResourceClient) -> int:
        ring, changed = self._app.ring(), 0
        for member in await resources.members(self.name):
            fresh = {key: ring.reseal(text, (self.name, member.name, key)) for key, text in member.secrets.items()}
            if fresh != member.secrets:
                await resources.change(self.name, [member.name], ResourceChange(secrets=fresh))
                changed += 1
        return changed

    def run(self, work: Coroutine[Any, Any, T], *, what: str, limit: float = LIMIT) -> T:
        """The sync face of a call."""
        return self._app.run(work, what=what, limit=limit)

    async def aask(self, work: Work[T]) -> T:
        return await self._app.aask(lambda client: work(client.resources))

    async def acts(self, act: str, target: str, work: Work[T], **details: object) -> T:
        """As `aask`, for what belongs in the audit log."""
        return await self._app.aask(lambda client: work(self._app.acting(client, act, target, **details).resources))

    def begin(self, work: Work[T]) -> "Future[T]":
        return self._app.begin(lambda client: work(client.resources))


def _change_name(change: ResourceChange | None) -> str:
    """What the command line calls it."""
    if change is None:
        return "remove"
    return "reset" if change.reset else "enable" if change.enabled else "disable"


def _named(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise InvalidInput("say which members to remove", why="removing all by accident is too easy", fix="name them")
    return names
