"""Resource pools, the members of one, and one member with its history."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pitboss.engines.capabilities import capabilities
from pitboss.http.web.pages import Context, Page
from pitboss.http.web.pages.overview import ORDER, resource_pools
from pitboss.http.web.pages.workers import pages_of, part, pool_figures
from pitboss.http.web.view import View
from pitboss.model.figures import MINUTE
from pitboss.model.queue import Queue
from pitboss.model.resource_keys import LIMIT_KEYS
from pitboss.model.text import HIDDEN
from pitboss.operate.documents import resource_pool_document
from pitboss.operate.resources import ResourcePoolReading, limits_text, read_member, read_resource_pool

_SECONDS = 2.0
# Of a larger pool, this number of members of each condition is shown first.
_SAMPLE, _SAMPLE_ABOVE = 3, 15
_STEP, _STEPS = 5 * MINUTE, 12
# The areas of the chart, from below: conditions and the look of their area.
_AREAS = (
    (("ready", "busy", "resting"), "f-run a0"),
    (("cooling",), "f-warn a1"),
    (("blacklisted",), "f-bad a1"),
    (("disabled",), "f-mute a2"),
)
# The limits that the form offers; the command sets all of them.
_OFFERED = ("per_minute", "per_hour", "min_delay", "concurrency", "cooldown", "max_failures")
TOPICS = ("resources", "queues", "workers", "store")


async def pools(view: View) -> Context:
    found = await resource_pools(view)
    status = await view.status()
    bound: dict[str, list[Queue]] = {one["pool"].name: [] for one in found}
    for queue in status.queues:
        bound.setdefault(queue.resources or "", []).append(queue)
    return {
        "pools": found,
        "order": ORDER,
        "bound": {name: [one.name for one in queues] for name, queues in bound.items()},
        "waiting": {name: sum(one.waiting for one in queues) for name, queues in bound.items() if queues},
        "limits": {one["pool"].name: limits_text(one["pool"].rules.limits) for one in found},
        "supported": capabilities(view.store).resources is not None,
    }


async def one_pool(view: View) -> Context:
    name, now = view.places["pool"], view.now
    reading = await view.readings.get(
        ("resource-pool", name), lambda: read_resource_pool(view.store, name, now), _SECONDS
    )
    status = await view.status()
    counts = Counter(one.condition.value for one in reading.members)
    condition, text = view.query.get("condition", ""), view.query.get("q", "").strip().lower()
    order = {name: place for place, name in enumerate(("cooling", "blacklisted", "busy", "resting", "ready"))}
    members = sorted(reading.members, key=lambda one: (order.get(one.condition, len(order)), one.until or 0))
    chosen = [
        one for one in members if condition in ("", one.condition) and _named(one.member.name, one.member.labels, text)
    ]
    figures = await pool_figures(view, name)
    sample = len(members) > _SAMPLE_ABOVE and not (condition or text or "page" in view.query or "all" in view.query)
    if sample:
        chosen = [one for kind in order for one in [m for m in members if m.condition == kind][:_SAMPLE]]
        chosen += [one for one in members if one.condition not in order][:_SAMPLE]
    return {
        "sample": sample,
        "title": name,
        "pool": reading,
        "others": [(one.name, one.members) for one in status.resource_pools],
        "counts_by_condition": counts,
        "order": ORDER,
        "cell_list": [kind for kind in ORDER for _ in range(counts[kind])],
        "usable": reading.usable,
        "in_use": sum(one.member.in_use for one in reading.members),
        "places": _places(reading),
        "condition": condition,
        "text": text,
        "rows": part(view, chosen),
        "limits": limits_text(reading.rules.limits),
        "rules": resource_pool_document(reading)["set_by"],
        "offered": _OFFERED,
        "keys": LIMIT_KEYS,
        "queues": [queue for queue in status.queues if queue.name in reading.queues],
        "secrets": sorted({name for one in reading.members for name in one.member.secrets}),
        "hidden": HIDDEN,
        "figures": figures,
        "areas": [(look, _summed(figures.series, kinds)) for kinds, look in _AREAS] if figures else [],
        "coming": reading.coming_back(now, _STEP, _STEPS),
        "coming_until": now + _STEP * _STEPS,
        **pages_of(view, len(chosen)),
    }


async def one_member(view: View) -> Context:
    pool, name = view.places["pool"], view.places["member"]
    page = await read_member(view.store, pool, name, view.now)
    return {
        "title": name,
        "page": page,
        "reading": page.reading,
        "member": page.reading.member,
        "record": page.reading.member.record,
        "limits": limits_text(page.reading.limits),
        "history": list(reversed(page.reading.member.record.history)),
        "hidden": HIDDEN,
    }


def _named(name: str, labels: Sequence[str], text: str) -> bool:
    return text in name.lower() or text in [label.lower() for label in labels]


def _places(pool: ResourcePoolReading) -> int | None:
    """How many uses the enabled members allow at a time; None: any number."""
    most = [one.limits.concurrency for one in pool.members if one.member.enabled]
    return None if None in most else sum(one or 0 for one in most)


def _summed(series: Any, kinds: Sequence[str]) -> list[float | None]:
    """The members in any of these conditions, at each step."""
    columns = [series[f"members_{kind}"] for kind in kinds if f"members_{kind}" in series]
    return [None if None in values else sum(values) for values in zip(*columns, strict=True)]


PAGES = (
    Page("/resources", "Resources", "resources.html", pools, TOPICS),
    Page("/resources/{pool}", "Resource pool", "resource_pool.html", one_pool, TOPICS),
    Page("/resources/{pool}/{member}", "Member", "member.html", one_member, TOPICS),
)
