"""The first page: the verdict, and the evidence below it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from pitboss.client.handler_sizes import HandlerSizes, recall_sizes
from pitboss.engines.capabilities import capabilities
from pitboss.http.web.charts import read_charts
from pitboss.http.web.pages import Context, Page
from pitboss.http.web.remedies import remedies
from pitboss.http.web.view import View
from pitboss.model.access import Role
from pitboss.model.duration import SECOND
from pitboss.model.figures import MINUTE
from pitboss.model.filter import EVERYTHING, by, written
from pitboss.model.fleet import ManagerView, live_managers, odd_workers
from pitboss.model.schedule import Schedule
from pitboss.model.states import State
from pitboss.operate import queue_flows as flows_of
from pitboss.operate.activity import activity_document, read_activity
from pitboss.operate.failures import FailureGroup, FailureGroups, failure_groups, failures_over_time
from pitboss.operate.key_numbers import evidence, key_numbers
from pitboss.operate.pulse import Pulse, read_pulse
from pitboss.operate.queue_flows import QueueFlow
from pitboss.operate.remote_workers import RemoteWorker
from pitboss.operate.resources import list_resource_pools, neediest
from pitboss.operate.schedules import last_runs, read_named_schedules
from pitboss.operate.status import Status
from pitboss.operate.system import read_store_facts
from pitboss.operate.undo import undo_offers

ORDER = ("ready", "busy", "resting", "cooling", "blacklisted", "disabled")
_SIZES_SECONDS, _PULSE_SECONDS, _SECONDS = 30.0, 5.0, 2.0
_QUEUES, _POOLS, _BATCHES, _FAILURES, _HAPPENINGS, _ODD, _RUNS = 8, 6, 6, 4, 8, 5, 12
# The bars of failures: an hour in steps of three minutes.
_STEP, _STEPS = 3 * MINUTE, 20


async def read(view: View) -> Context:
    status = await view.status()
    now, store = status.now, view.store
    managers = live_managers(status.sessions, now)
    flows, pulse = await queue_flows(view), await read_shared_pulse(view)
    acts = Role.ADMIN in view.call.caller.roles
    log = await view.readings.get(
        ("activity", acts), lambda: read_activity(store, limit=_HAPPENINGS, acts=acts), _SECONDS
    )
    groups = await failures(view)
    verdict, empty = status.verdict, not managers and not status.queues
    return {
        "status": status,
        "empty_store": empty,
        "facts": await read_store_facts(store) if empty else None,
        "linked": list(linked(view, status, verdict.sentence)),
        "why": list(linked(view, status, verdict.why)),
        "remedies": remedies(view, verdict.actions),
        "also": [list(linked(view, status, line)) for line in verdict.also],
        "evidence": evidence(status, flows, pulse),
        "totals": key_numbers(status, flows, pulse, managers),
        "pulse": pulse,
        "flows": flows[:_QUEUES],
        "queue_count": len(flows),
        "strips": strips(managers),
        "remote": sum(one.status != "offline" for one in await remote_workers(view)),
        "sizes": await handler_sizes(view),
        "states": Counter(one.state.value for manager in managers for one in manager.snapshot.workers),
        "odd": odd_workers(managers)[:_ODD],
        "pools": (await resource_pools(view))[:_POOLS],
        "order": ORDER,
        "charts_of": await read_charts(view),
        "batches": status.batches[:_BATCHES],
        "groups": groups.groups[:_FAILURES],
        "bars": await failure_bars(view, groups.groups[:_FAILURES]),
        "group_count": len(groups.groups),
        "schedules": (coming := await _schedules(view, status)),
        "runs": {one.schedule.name: await _runs(view, one.schedule) for one in coming},
        "wall": status.wall,
        "overdue": status.schedules.overdue if status.schedules else (),
        "log": [activity_document(one) | {"at_moment": one.at} for one in log],
        "undo": undo_offers(log),
    }


async def handler_sizes(view: View) -> dict[str, HandlerSizes]:
    """How long runs of handlers usually take, and how much memory they need."""
    figures = capabilities(view.store).figures
    if figures is None:
        return {}
    return await view.readings.get("sizes", lambda: recall_sizes(figures, view.now), _SIZES_SECONDS)


async def remote_workers(view: View) -> list[RemoteWorker]:
    return await view.readings.get("remote", lambda: view.call.server.workers.all(view.now), _SECONDS)


async def queue_flows(view: View) -> list[QueueFlow]:
    pulse = await read_shared_pulse(view)
    return flows_of.queue_flows(await view.status(), pulse.runs)


async def read_shared_pulse(view: View) -> Pulse:
    return await view.readings.get("pulse", lambda: read_pulse(view.store, view.now), _PULSE_SECONDS)


async def failure_bars(view: View, groups: Sequence[FailureGroup], **more: str) -> list[list[int]]:
    """The failures of each group in the last hour, by time. `more` are further fields of the filter."""
    found = []
    for one in groups:
        wanted = one.cause.also(task=one.handler, **more)
        read = partial(failures_over_time, view.store, wanted, view.now, step=_STEP, steps=_STEPS)
        found.append(
            await view.readings.get(("failure bars", one.name, one.handler, *more.values()), read, _PULSE_SECONDS)
        )
    return found


async def failures(view: View) -> FailureGroups:
    return await view.readings.get("failures", lambda: failure_groups(view.store, EVERYTHING), _SECONDS)


def linked(view: View, status: Status, said: str) -> Iterator[tuple[str, str]]:
    """A sentence in pieces, with addresses for the queues and pools that it names in quotes."""
    managers = live_managers(status.sessions, status.now)
    places = {one.name: view.url(f"/resources/{one.name}") for one in status.resource_pools}
    places |= {pool.name: view.url("/workers", pool=pool.name) for one in managers for pool in one.snapshot.pools}
    places |= {
        one.name: view.url("/tasks", q=written(by(queue=one.name, state=State.PENDING))) for one in status.queues
    }
    for place, piece in enumerate(said.split('"')):
        if place % 2 and piece in places:
            yield piece, places[piece]
        elif piece:
            yield f'"{piece}"' if place % 2 else piece, ""


def strips(managers: Sequence[ManagerView]) -> list[dict[str, Any]]:
    """The workers of each pool, by host."""
    names = sorted({pool.name for manager in managers for pool in manager.snapshot.pools})
    found = []
    for name in names:
        hosts = []
        used = slots = 0
        for manager in managers:
            pool = next((one for one in manager.snapshot.pools if one.name == name), None)
            workers = [one for one in manager.snapshot.workers if one.pool == name]
            if pool is not None and workers:
                hosts.append(
                    {"name": manager.host, "session": manager.number, "workers": workers, "slots": pool.concurrency}
                )
                used += sum(one.running for one in workers)
                slots += pool.concurrency * sum(worker.pool == name for worker in manager.live)
        paused = any(one.paused for manager in managers for one in manager.snapshot.pools if one.name == name)
        found.append({"name": name, "hosts": hosts, "used": used, "slots": slots, "paused": paused})
    return found


async def resource_pools(view: View) -> list[dict[str, Any]]:
    """Resource pools with their members in the order of their condition."""
    if capabilities(view.store).resources is None:
        return []
    pools = await view.readings.get("pools", lambda: list_resource_pools(view.store, view.now), _SECONDS)
    found = []
    for pool in neediest(pools):
        counts = Counter(one.condition.value for one in pool.members)
        conditions = [name for name in ORDER for _ in range(counts[name])]
        found.append({"pool": pool, "counts": counts, "conditions": conditions})
    return found


async def _schedules(view: View, status: Status) -> Sequence[Any]:
    first = status.schedules.first if status.schedules else ()
    return await view.readings.get(("schedules", first), lambda: read_named_schedules(view.store, first), _SECONDS)


async def _runs(view: View, schedule: Schedule) -> list[float]:
    """How long its last runs took, in seconds, the oldest first."""
    name = ("runs", schedule.name)
    found = await view.readings.get(name, lambda: last_runs(view.store, schedule, _RUNS), _PULSE_SECONDS)
    ended = [task for _, task in reversed(found) if task.started_at is not None and task.finished_at is not None]
    return [(one.finished_at - one.started_at) / SECOND for one in ended]  # type: ignore[operator]


TOPICS = ("queues", "workers", "batches", "resources", "schedules", "happenings", "wishes", "store")
PAGES = (Page("", "Overview", "overview.html", read, TOPICS),)
