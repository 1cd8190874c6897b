"""The sweep: tasks of dead sessions go back, held tasks whose handler is known are released, old rows are removed."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.batch_lifecycle import statuses
from pitboss.engines.sqlite.control import continue_cancelling
from pitboss.engines.sqlite.leases import end_overdue
from pitboss.engines.sqlite.registry import release_held
from pitboss.engines.sqlite.returns import Returns, pool_of
from pitboss.engines.sqlite.settle import ClaimRow, claim_rows
from pitboss.model.batching import Waiting
from pitboss.model.duration import SECOND
from pitboss.model.member_health import STRIKES_KEPT
from pitboss.model.session import Reclaimed
from pitboss.model.settlement import lost
from pitboss.model.states import State

HOUR = 3600 * SECOND


def reclaim(act: Act, limit: int) -> Reclaimed:
    """As the contract says."""
    orphans = act.decoded("reclaim_orphans", claim_rows, act.now, limit + 1)
    found = orphans[:limit]
    _give_back(act, found)
    cancelled = _lose(act, found)
    names = (str(row[0]) for row in act.rows("handler_list_served", act.now))
    released = release_held(act, names, limit)
    leases = end_overdue(act, limit)
    cancelled_items, more = continue_cancelling(act, limit)
    _tidy(act)
    return Reclaimed(
        lost=len(found) - cancelled,
        cancelled=cancelled + cancelled_items,
        released=released,
        leases=leases,
        more=more or len(orphans) > limit or limit in (released, leases),
    )


def _give_back(act: Act, orphans: list[ClaimRow]) -> None:
    held = [
        (pool_of(one.resource), one.member) for one in orphans if one.resource is not None and one.member is not None
    ]
    returns = Returns(act)
    returns.prefetch((*one, False) for one in held)
    for pool, member in held:
        returns.take_back(pool, member, None)
    returns.write()


def _lose(act: Act, orphans: list[ClaimRow]) -> int:
    """End the claims of dead sessions; how many tasks were cancelled."""
    batches = statuses(act, {one.batch for one in orphans})
    ends = [(one, lost(one, batch=batches.get(one.batch), now=act.now)) for one in orphans]
    runs = [(one.id, end.run) for one, end in ends if end.run is not None]
    if runs:
        act.record(runs)
    places: dict[Waiting, list[int]] = {}
    for one, end in ends:
        places.setdefault(Waiting(end.state, end.reason), []).append(one.row)
    for place, rows in places.items():
        if place.state is State.CANCELLED:
            act.run("reclaim_cancel", act.now, json_list(rows))
        else:
            act.run("reclaim_lose", json_list(rows), place.state.value, place.reason)
    cancelled = [one for one, end in ends if end.state is State.CANCELLED]
    act.bulk("key_free", [(one.id, one.unique_key) for one in cancelled if one.unique_key is not None])
    for (queue, batch, state), n in Counter((one.queue, one.batch, end.state) for one, end in ends).items():
        act.moved(queue, "running", state.value, n, batch)
        if state is not State.CANCELLED:
            act.rings.add(queue)
    return len(cancelled)


def _tidy(act: Act) -> None:
    """Remove old rows, and look at all lanes again: a promotion must not depend on a single act."""
    act.run("session_forget", act.now - HOUR)
    act.run("binding_forget", act.now)
    act.run("departed_forget", act.now)
    act.run("strike_forget_old", act.now - STRIKES_KEPT)
    rows: Iterable[Any] = act.rows("lane_list_queued")
    act.lanes.update(row[0] for row in rows)
