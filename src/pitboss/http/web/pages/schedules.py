"""Schedules by name, and one schedule: its next ticks, its last runs, and what it puts."""

from pitboss.http.web.pages import Context, Page
from pitboss.http.web.view import View
from pitboss.operate.schedule_documents import schedule_document
from pitboss.operate.schedules import coming_ticks, last_runs, read_schedule, read_schedules

_ROWS, _TICKS, _RUNS = 50, 8, 12
TOPICS = ("schedules", "queues", "acts", "store")


async def read_all(view: View) -> Context:
    after = view.query.get("after") or None
    found = await read_schedules(view.store, limit=_ROWS + 1, after=after)
    status = await view.status()
    return {
        "schedules": found[:_ROWS],
        "figures": status.schedules,
        "wall": view.store.clock.wall(),
        "first": after is None,
        "next": found[_ROWS - 1].schedule.name if len(found) > _ROWS else None,
    }


async def read_one(view: View) -> Context:
    reading = await read_schedule(view.store, view.places["name"])
    one = reading.schedule
    document = schedule_document(reading)
    return {
        "reading": reading,
        "one": one,
        "spec": one.spec,
        "name": one.name,
        "wall": view.store.clock.wall(),
        "ticks": coming_ticks([one], _TICKS),
        "runs": await last_runs(view.store, one, _RUNS),
        "changed": [(name, document[name], declared) for name, declared in document["changed"].items()],
    }


PAGES = (
    Page("/schedules", "Schedules", "schedules.html", read_all, TOPICS),
    Page("/schedules/{name}", "Schedule", "schedule.html", read_one, TOPICS),
)
