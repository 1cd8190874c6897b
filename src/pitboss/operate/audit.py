"""The audit log: what operators did, whatever the face."""

from pitboss.engines.capabilities import access_of
from pitboss.engines.protocol import Handlers
from pitboss.model.access import AuditEntry

_PAGE = 500


async def read_audit(
    store: object, limit: int = 100, before: str | None = None, act: str | None = None, who: str | None = None
) -> list[AuditEntry]:
    """The newest entries, newest first; `before`: only those older than the entry with this id.

    `act` selects by the words with which an act begins ("queues" finds "queues pause"), `who` by the name of a key or
    user, with or without its host.
    """
    access, found = access_of(store), list[AuditEntry]()
    size = limit if act is None and who is None else max(limit, _PAGE)
    while len(found) < limit:
        page = await access.audit_log(limit=size, before=before)
        found += [entry for entry in page if _matches(entry, act, who)]
        if len(page) < size:
            break
        before = page[-1].id
    return found[:limit]


async def record(store: Handlers) -> None:
    """Store the entry of an audited store by an act that changes nothing. For acts that put tasks: a put stores no
    entry, because most puts are not an operator's."""
    await store.register(())


def _matches(entry: AuditEntry, act: str | None, who: str | None) -> bool:
    acted = act is None or f"{entry.act} ".startswith(f"{act.strip()} ")
    return acted and (who is None or who in (entry.who, entry.who.partition("@")[0]))
