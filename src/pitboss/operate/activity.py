"""What happened and what operators did, as one list by time."""

from collections.abc import Sequence
from typing import Any

from pitboss.engines.capabilities import capabilities, happenings_of
from pitboss.model.access import AuditEntry
from pitboss.model.canonical import from_json
from pitboss.model.duration import Moment
from pitboss.model.errors import InvalidInput
from pitboss.model.happening import Happening, Kind, Severity, floor_id
from pitboss.operate.documents import Document, utc

# The kind of an entry of the audit log in this list.
ACT = "act"
KINDS = (*(kind.value for kind in Kind), ACT)

Activity = Happening | AuditEntry


async def read_activity(
    store: object,
    *,
    limit: int = 50,
    before: str | None = None,
    since: Moment | None = None,
    kinds: Sequence[str] = (),
    acts: bool = True,
) -> list[Activity]:
    """The newest, newest first: happenings and, with `acts`, entries of the audit log. `before`: only those older than
    the one with this id. `kinds`: only these (`KINDS`)."""
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        raise InvalidInput(f"{unknown[0]} is not a kind", why=f"the kinds are {', '.join(KINDS)}", fix="name one")
    found = list[Activity]()
    wanted = [Kind(name) for name in kinds if name != ACT]
    log, access = happenings_of(store), capabilities(store).access
    if wanted or not kinds:
        found += await log.happenings(limit=limit, before=before, since=since, kinds=wanted)
    if acts and access is not None and (not kinds or ACT in kinds):
        first = floor_id(since)
        found += [one for one in await access.audit_log(limit=limit, before=before) if one.id >= first]
    return sorted(found, key=lambda one: one.id, reverse=True)[:limit]


def act_text(entry: AuditEntry) -> str:
    """ "ann@host: queues pause mail {"reason":"site is down"}"."""
    details = "" if entry.details == "{}" else f" {entry.details}"
    return f"{entry.who}: {entry.act} {entry.target}".rstrip() + details


def activity_document(one: Activity) -> Document:
    """Both have the same keys; those of the other are None."""
    if isinstance(one, AuditEntry):
        severity, text, subject, own = Severity.INFO, act_text(one), one.target, {"kind": ACT, "count": 1}
        own |= {"who": one.who, "act": one.act, "source": one.source, "host": None, "manager": None}
    else:
        severity, text, subject, own = one.severity, one.text, one.subject, {"kind": one.kind.value, "count": one.count}
        own |= {"who": None, "act": None, "source": None, "host": one.host, "manager": one.manager or None}
    about: dict[str, Any] = {"id": one.id, "at": utc(one.at), "severity": severity.value, "subject": subject}
    return {**about, "text": text, **own, "details": from_json(one.details)}
