"""The audit log: what operators did, whatever the face."""

from typing import NamedTuple

from pitboss.engines.capabilities import access_of
from pitboss.engines.protocol import Handlers
from pitboss.model.access import AuditEntry
from pitboss.model.duration import Moment

MOST_READ = 20_000
_PAGE = 500


class AuditPage(NamedTuple):
    """Entries of the audit log, newest first. `next` is the id with which to go on; None: these are all. Where the
    rest was not read, because it may be long, `covered` is the moment of the last entry that was."""

    entries: list[AuditEntry]
    next: str | None = None
    covered: Moment | None = None


async def read_audit(
    store: object, limit: int = 100, before: str | None = None, act: str | None = None, who: str | None = None
) -> AuditPage:
    """The newest entries; `before`: only those older than the entry with this id.

    `act` selects by the words with which an act begins ("queues" finds "queues pause"), `who` by the name of a key or
    user, with or without its host. At most `MOST_READ` entries are read.
    """
    access, found, read = access_of(store), list[AuditEntry](), 0
    size = limit if act is None and who is None else max(limit, _PAGE)
    while True:
        page = await access.audit_log(limit=size, before=before)
        found += [entry for entry in page if _matches(entry, act, who)]
        if len(found) > limit or (len(found) == limit and len(page) == size):
            return AuditPage(found[:limit], found[limit - 1].id)
        if len(page) < size:
            return AuditPage(found)
        before, read = page[-1].id, read + len(page)
        if read >= MOST_READ:
            return AuditPage(found, before, page[-1].at)


async def record(store: Handlers) -> None:
    """Store the entry of an audited store by an act that changes nothing. For acts that put tasks: a put stores no
    entry, because most puts are not an operator's."""
    await store.register(())


def _matches(entry: AuditEntry, act: str | None, who: str | None) -> bool:
    acted = act is None or f"{entry.act} ".startswith(f"{act.strip()} ")
    return acted and (who is None or who in (entry.who, entry.who.partition("@")[0]))
