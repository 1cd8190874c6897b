"""Alerts: what fires, every rule with its value, silences, and tests of channels."""

from pitboss.http.web.pages import Context, Page
from pitboss.http.web.view import View
from pitboss.model.alert import Phase
from pitboss.model.alert_message import LOG
from pitboss.model.happening import Kind
from pitboss.operate.activity import activity_document, read_activity
from pitboss.operate.alerts import read_alerts

_RECENT = 10
# For how long a rule may be silenced, in seconds.
_SILENCES = (("1 hour", 3600), ("8 hours", 28_800), ("1 day", 86_400), ("1 week", 604_800))


async def read(view: View) -> Context:
    found = await read_alerts(view.store)
    log = await read_activity(view.store, limit=_RECENT, kinds=[Kind.ALERT], acts=False)
    return {
        "found": found,
        "firing": found.firing,
        "silenced": [one for one in found.alerts if one.silence is not None],
        "rules": found.alerts,
        "recent": [activity_document(one) | {"at_moment": one.at} for one in log],
        "channels": sorted(found.channels.items()),
        "LOG": LOG,
        "QUIET": Phase.QUIET,
        "silences": _SILENCES,
    }


PAGES = (Page("/alerts", "Alerts", "alerts.html", read, ("happenings", "acts", "queues", "workers", "store")),)
