"""One queue: what becomes of its backlog and why, figures over time, who runs its tasks, and its limits."""

from typing import Any

from pitboss.http.web.charts import read_charts
from pitboss.http.web.pages import Context, Page
from pitboss.http.web.view import View
from pitboss.model.filter import by
from pitboss.model.fleet import live_managers, worker_pools
from pitboss.model.queue import LIMITS, Queue
from pitboss.model.queue_forecast import spoken_clear
from pitboss.model.states import State
from pitboss.operate.queue_flows import serving_pools
from pitboss.operate.queues import QueueReading, limit_readings, limit_text, partitioning_text, read_queue

_FAILURES = 5
_SAID = {
    "rate": ("Starts", "as in 20/min, or 2/s, 1000/h"),
    "capacity": ("Tasks that may wait", "a number"),
    "max_per_key": ("Running per partition key", "a number"),
}


async def read(view: View) -> Context:
    name = view.places["name"]
    found: QueueReading = await view.readings.get(("queue", name), lambda: read_queue(view.store, name, view.now))
    status, queue = await view.status(), found.queue
    pools = serving_pools(worker_pools(live_managers(status.sessions, status.now)), name)
    failed = await view.store.find(by(queue=name, state=State.FAILED), limit=_FAILURES)
    return {
        "name": name,
        "queue": queue,
        "forecast": (forecast := status.forecasts.get(name, found.forecast)),
        "clears": spoken_clear(forecast),
        "states": [(state.value, queue.counts.get(state, 0)) for state in State],
        "pools": pools,
        "slots": sum(one.slots for one in pools),
        "handlers": [one for one in await view.store.handlers() if one.queue == name],
        "failed": failed.tasks,
        "limits": _limits(queue),
        "partitioning": None if queue.partitions is None else partitioning_text(queue.partitions),
        "charts_of": await read_charts(view, name),
    }


def _limits(queue: Queue) -> list[dict[str, Any]]:
    """All limits that a queue can have, also those that are not set."""
    known = {one.key: one for one in limit_readings(queue)}
    found = []
    for key in LIMITS:
        said, hint = _SAID[key]
        value = limit_text(queue, key)
        plain = "" if value == "none" else value.replace(",", "") if key != "rate" else value
        found.append({"key": key, "said": said, "hint": hint, "reading": known.get(key), "value": plain})
    return found


PAGES = (Page("/queues/{name}", "Queue", "queue.html", read, ("queues", "workers", "wishes", "store")),)
