"""Health, queues, managers, worker pools, failures, keys and the audit log: what operators look at and change."""

from importlib import metadata
from typing import Any

from pitboss.http import bodies
from pitboss.http.answers import Answer, ApiError
from pitboss.http.context import Call
from pitboss.model.access import Role, checked_roles
from pitboss.model.duration import SECOND, span
from pitboss.model.errors import InvalidInput, NotFound, Refused, StoreUnavailable
from pitboss.model.filter import parsed
from pitboss.model.fleet import ManagerView
from pitboss.model.limits import rate
from pitboss.model.partition import Partition
from pitboss.model.queue import LIMITS, QueueChange
from pitboss.model.text import counted
from pitboss.operate.activity import activity_document, read_activity
from pitboss.operate.audit import read_audit
from pitboss.operate.desired_state import (
    drain_managers,
    pause_pool,
    read_desired_state,
    restart_pool,
    scale_pool,
    stop_managers,
)
from pitboss.operate.documents import (
    audit_document,
    failure_group_document,
    key_document,
    managers_document,
    partition_document,
    partitions_document,
    queue_document,
    utc,
    worker_pools_document,
)
from pitboss.operate.failures import failure_groups
from pitboss.operate.figures import figures_document, read_figures
from pitboss.operate.keys import create_key, list_keys, revoke_key
from pitboss.operate.overview import overview_document, read_overview
from pitboss.operate.partitions import move_key, pin_key, read_partitions, unpin_key
from pitboss.operate.queues import read_queue, read_queues
from pitboss.operate.status import read_status
from pitboss.operate.status_documents import queue_page_document, status_document
from pitboss.operate.tasks import change_queues
from pitboss.operate.undo import find_undo_offers, find_undoable, in_words, undo, undoing
from pitboss.operate.workers import list_worker_pools, read_managers

# What a request without a body means.
PAUSE = bodies.Pause()


async def health(call: Call) -> Answer:
    """Whether the server and its store answer."""
    try:
        await call.store.leader()
    except StoreUnavailable as error:
        # Who has no key learns nothing of the store.
        told = {"why": error.what, "fix": error.fix} if call.caller.roles else {}
        raise ApiError(503, "The store does not answer", **told) from error
    data = {
        "status": "healthy",
        "timestamp": call.server.clock.wall() // SECOND,
        "database": "connected",
        "version": call.server.release or metadata.version("pitboss"),
    }
    return Answer(data=data, message="Healthy")


async def alive(call: Call) -> Answer:
    """The process answers, whatever the store does."""
    return Answer(data={"status": "alive", "waiting": call.server.claims.waiting})


async def status(call: Call) -> Answer:
    """How the store is doing, with the next step."""
    return Answer(data=status_document(await read_status(call.store, call.now, call.server.release)))


async def overview(call: Call, *, since: str) -> Answer:
    return Answer(data=overview_document(await read_overview(call.store, call.now, span(since, what="since"))))


async def list_queues(call: Call) -> Answer:
    """All queues with their counts, limits and forecasts."""
    found = [queue_page_document(one.queue, one.forecast) for one in await read_queues(call.store, call.now)]
    return Answer(data={"queues": found, "items": found, "count": len(found)})


async def get_queue(call: Call, name: str) -> Answer:
    """One queue, with its forecast."""
    if any(queue.name == name for queue in await call.store.queues()):
        found = await read_queue(call.store, name, call.now)
        return Answer(data=queue_page_document(found.queue, found.forecast))
    raise ApiError(404, "Queue not found", why=f'there is no queue "{name[:80]}"', fix="GET /api/queues lists them")


async def change_queue(call: Call, name: str, body: bodies.ChangeQueue) -> Answer:
    """Limit a queue. A field that is not named stays as it is; null takes the limit away."""
    given = body.model_fields_set
    changes: dict[str, Any] = {}
    changes |= {key: getattr(body, key) for key in ("capacity", "max_per_key") if key in given}
    if "rate" in given:
        changes["rate"] = rate(body.rate) if body.rate else ()
    if body.reset:
        changes["withdraw"] = tuple(key for key in LIMITS if key not in given)
    change = QueueChange(**changes)
    details = body.model_dump(include=given)
    (queue,) = await change_queues(await call.kept("queues limit", name, details), [name], change)
    return Answer(data=queue_document(queue), message="Queue changed")


async def pause_queue(call: Call, name: str, body: bodies.Pause = PAUSE) -> Answer:
    """Let a queue give no tasks."""
    store = await call.kept("queues pause", name, body.model_dump(exclude_defaults=True))
    (queue,) = await change_queues(store, [name], QueueChange(paused=True, by=call.by, reason=body.reason))
    return Answer(data=queue_document(queue), message="Queue paused")


async def resume_queue(call: Call, name: str) -> Answer:
    """Let a queue give tasks again."""
    (queue,) = await change_queues(call.audited("queues resume", name), [name], QueueChange(paused=False, by=call.by))
    return Answer(data=queue_document(queue), message="Queue resumed")


async def list_managers(call: Call) -> Answer:
    """The managers of all hosts, with their workers."""
    found = managers_document(await read_managers(call.store, call.now, with_gone=True))
    return Answer(data={**found, "items": found["managers"], "count": len(found["managers"])})


async def act_on_manager(call: Call, session: int, act: str) -> Answer:
    manager = await _manager(call, session)
    store = call.audited(f"managers {act}", str(session))
    if act == "stop":
        await stop_managers(store, [manager], by=call.by)
    else:
        await drain_managers(store, [manager], undo=act == "undrain", by=call.by)
    said = {"stop": "Manager stops", "drain": "Manager drains", "undrain": "Manager takes tasks again"}[act]
    return Answer(data={"session": session, "host": manager.host, "asked": act}, message=said)


async def list_pools(call: Call) -> Answer:
    """The worker pools of all managers."""
    pools = await list_worker_pools(call.store, call.now)
    found = worker_pools_document(pools, await read_desired_state(call.store))
    return Answer(data={**found, "items": found["pools"], "count": len(found["pools"])})


async def scale(call: Call, name: str, body: bodies.ScalePool) -> Answer:
    """Set how many workers the pool has in each manager; null returns to configuration and load."""
    store = await call.kept("worker-pools scale", name, {"size": body.size, "host": body.host})
    done = await scale_pool(store, call.now, name, body.size, host=body.host, by=call.by)
    data = {"name": name, "size": body.size, "managers": len(done.pools), "overruled": list(done.overruled)}
    wanted = "follows its configuration and load" if body.size is None else f"gets {counted(body.size, 'worker')}"
    return Answer(data=data, message=f"Pool {name} {wanted} in {counted(len(done.pools), 'manager')}")


async def restart(call: Call, name: str) -> Answer:
    """Replace the workers of a pool one by one."""
    done = await restart_pool(call.audited("worker-pools restart", name), call.now, name, by=call.by)
    data = {"name": name, "generation": done.generation, "managers": len(done.pools)}
    return Answer(data=data, message=f"Pool {name} replaces its workers one by one")


async def pause(call: Call, name: str, body: bodies.Pause = PAUSE) -> Answer:
    """Give the workers of a pool no more tasks."""
    store = await call.kept("worker-pools pause", name, body.model_dump(exclude_defaults=True))
    done = await pause_pool(store, call.now, name, paused=True, by=call.by, reason=body.reason)
    return Answer(data={"name": name, "paused": True, "managers": len(done.pools)}, message=f"Pool {name} paused")


async def resume(call: Call, name: str) -> Answer:
    """Give the workers of a pool tasks again."""
    done = await pause_pool(call.audited("worker-pools resume", name), call.now, name, paused=False, by=call.by)
    return Answer(data={"name": name, "paused": False, "managers": len(done.pools)}, message=f"Pool {name} resumed")


async def get_partitions(call: Call, name: str) -> Answer:
    """The slots of a queue's workers with their keys, and the keys that no live slot has."""
    return Answer(data=partitions_document(await read_partitions(call.store, name, call.now)))


async def move_partition(call: Call, name: str, body: bodies.GiveKey) -> Answer:
    """Give a key to another slot: at once, or when none of its tasks runs."""
    store = call.audited("partitions move", name, body.model_dump())
    return _moved(await move_key(store, name, body.key, body.slot, call.now))


async def pin_partition(call: Call, name: str, body: bodies.GiveKey) -> Answer:
    """Give a key to a slot and keep it there, whatever the table or the work says."""
    store = call.audited("partitions pin", name, body.model_dump())
    return _moved(await pin_key(store, name, body.key, body.slot, call.now))


async def unpin_partition(call: Call, name: str, body: bodies.OneKey) -> Answer:
    """End a pin: the key follows the table or the work again."""
    found = await unpin_key(call.audited("partitions unpin", name, body.model_dump()), name, body.key, call.now)
    return Answer(data={**partition_document(found.key), "home": found.home}, message="Pin ended")


def _moved(key: Partition) -> Answer:
    later = f"Key moves to {key.moving_to} when none of its tasks runs"
    message = f"Key belongs to {key.owner}" if key.moving_to is None else later
    return Answer(data=partition_document(key), message=message)


async def failures(call: Call, wanted: str | None) -> Answer:
    """Failed tasks, grouped by cause."""
    found = await failure_groups(call.store, parsed(wanted or ""))
    groups = [failure_group_document(group) for group in found.groups]
    return Answer(data={"groups": groups, "items": groups, "count": len(groups), "more": found.more})


async def figures(
    call: Call, since: str, step: str | None, *, queue: str | None, handler: str | None, pool: str | None
) -> Answer:
    found = await read_figures(
        call.store,
        call.now,
        since=span(since),
        step=None if step is None else span(step),
        queue=queue,
        handler=handler,
        pool=pool,
    )
    return Answer(data=figures_document(found))


async def get_keys(call: Call) -> Answer:
    """All keys, without their secrets."""
    found = [key_document(key) for key in await list_keys(call.store)]
    return Answer(data={"keys": found, "items": found, "count": len(found)})


async def add_key(call: Call, body: bodies.CreateKey) -> Answer:
    """Make a key. It is shown once, in this answer."""
    store = call.audited("keys create", body.name, {"roles": [role.value for role in body.roles]})
    makers = {"make_id": call.server.make_key_id, "make_secret": call.server.make_secret}
    try:
        key, text = await create_key(store, body.name, checked_roles(body.roles), by=call.caller.name, **makers)
    except InvalidInput as error:
        # Name and roles were checked: another key has the name.
        raise ApiError(409, error.what, why=error.why, fix=error.fix) from error
    await call.server.keys.read()
    return Answer(data={**key_document(key), "key": text}, message="Key created; it is not shown again", code=201)


async def remove_key(call: Call, name: str) -> Answer:
    """Revoke a key: it opens nothing any more."""
    key = await revoke_key(call.audited("keys revoke", name), name)
    await call.server.keys.read()
    return Answer(data=key_document(key), message="Key revoked")


async def audit(call: Call, *, limit: int, before: str | None, act: str | None, who: str | None) -> Answer:
    page = await read_audit(call.store, limit=limit, before=before, act=act, who=who)
    found = [audit_document(entry) for entry in page.entries]
    about = {"next": page.next, "covered": utc(page.covered)}
    return Answer(data={"entries": found, "items": found, "count": len(found), **about})


async def activity(call: Call, *, limit: int, before: str | None, since: str | None, kind: str | None) -> Answer:
    """`since` is an age such as 2h, `kind` one or more kinds with commas. Only admins see the audit log."""
    moment = None if since is None else call.now - span(since, what="since")
    kinds = [] if kind is None else kind.split(",")
    acts = Role.ADMIN in call.caller.roles
    entries = await read_activity(call.store, limit=limit, before=before, since=moment, kinds=kinds, acts=acts)
    offers = await find_undo_offers(call.store, entries)
    found = [activity_document(one) | {"undo": one.id in offers} for one in entries]
    following = entries[-1].id if len(entries) == limit else None
    return Answer(data={"activity": found, "items": found, "count": len(found), "next": following})


async def undo_act(call: Call, entry_id: str) -> Answer:
    """Undo an act, if nothing was changed there since: what was before is written back."""
    try:
        entry = await find_undoable(call.store, entry_id)
    except Refused as error:
        raise ApiError(409, error.what, why=error.why, fix=error.fix) from error
    store = await call.kept(undoing(entry), entry.target, {"undoes": entry.id})
    await undo(store, entry, by=call.by)
    return Answer(data={"id": entry.id, "act": entry.act, "target": entry.target}, message=f"Undone: {in_words(entry)}")


async def _manager(call: Call, session: int) -> ManagerView:
    for one in (await read_managers(call.store, call.now)).living:
        if one.number == session:
            return one
    raise NotFound(
        "Manager not found", why=f"no manager runs under session {session}", fix="GET /api/managers lists them"
    )
