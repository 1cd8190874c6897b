"""What happened and what operators did, as one list by time."""

from collections.abc import Sequence
from typing import Any

import msgspec

from pitboss.engines.capabilities import capabilities, happenings_of
from pitboss.model.access import AuditEntry
from pitboss.model.canonical import from_json, to_json
from pitboss.model.duration import Moment
from pitboss.model.errors import InvalidInput
from pitboss.model.happening import Happening, Kind, Severity, floor_id
from pitboss.operate.documents import Document, utc

# The kind of an entry of the audit log in this list.
ACT = "act"
KINDS = (*(kind.value for kind in Kind), ACT)

_PAGE, _MOST_SEARCHED = 200, 2000
# Details that only an undo needs.
_FOR_UNDO = ("before", "undoes")

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


def folded(rows: Sequence[Activity]) -> list[Activity]:
    """Happenings that say the same are one, the newest, with the number of all; what people did stays as it is."""
    newest: dict[Any, int] = {}
    found = list[Activity]()
    for one in rows:
        name = one.id if isinstance(one, AuditEntry) else (one.kind, one.host, one.subject, one.text)
        place = newest.setdefault(name, len(found))
        if place == len(found):
            found.append(one)
        elif isinstance(first := found[place], Happening) and isinstance(one, Happening):
            found[place] = msgspec.structs.replace(first, count=first.count + one.count)
    return found


async def search_activity(
    store: object,
    *,
    who: str = "",
    what: str = "",
    limit: int = 50,
    before: str | None = None,
    since: Moment | None = None,
    kinds: Sequence[str] = (),
    acts: bool = True,
) -> tuple[list[Activity], str | None]:
    """As `read_activity`, of those that `who` did (a name, with or without its host; or the host of a happening), and
    that have the text `what`. Returns also the id from which on to look further: at most `_MOST_SEARCHED` are read."""
    found, read = list[Activity](), 0
    while read < _MOST_SEARCHED:
        page = await read_activity(store, limit=_PAGE, before=before, since=since, kinds=kinds, acts=acts)
        for one in page:
            before, read = one.id, read + 1
            if _by(one, who) and _about(one, what):
                found.append(one)
                if len(found) == limit:
                    return found, before
        if len(page) < _PAGE:
            return found, None
    return found, before


def _by(one: Activity, who: str) -> bool:
    if isinstance(one, AuditEntry):
        return who in ("", one.who, one.who.partition("@")[0])
    return who in ("", one.host)


def _about(one: Activity, what: str) -> bool:
    text = act_text(one) if isinstance(one, AuditEntry) else f"{one.subject} {one.text}"
    return what.casefold() in text.casefold()


def act_text(entry: AuditEntry) -> str:
    """ "ann@host: queues pause mail {"reason":"site is down"}"."""
    shown = {name: value for name, value in from_json(entry.details).items() if name not in _FOR_UNDO}
    details = f" {to_json(shown)}" if shown else ""
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
