"""The sweep: tasks of dead claims go back, held tasks whose handler is known are released, old rows are removed."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.batch_lifecycle import conclude, statuses
from pitboss.engines.sqlite.control import continue_cancelling
from pitboss.engines.sqlite.failures import follow, may_be_followed
from pitboss.engines.sqlite.leases import end_overdue
from pitboss.engines.sqlite.order import release_next
from pitboss.engines.sqlite.registry import release_held
from pitboss.engines.sqlite.returns import Returns, pool_of
from pitboss.engines.sqlite.rows import error_text
from pitboss.engines.sqlite.settle import ClaimRow, claim_rows
from pitboss.model.access import REMEMBERED_FOR
from pitboss.model.duration import SECOND
from pitboss.model.figures import kinds_of_end
from pitboss.model.member_health import STRIKES_KEPT
from pitboss.model.session import Reclaimed
from pitboss.model.settlement import ClaimEnd, lost
from pitboss.model.states import FINISHED, State
from pitboss.model.task import TaskError

HOUR = 3600 * SECOND


def reclaim(act: Act, limit: int) -> Reclaimed:
    """As the contract says."""
    most = limit + 1
    orphans = [
        one for name in ("reclaim_orphans", "reclaim_ran_out") for one in act.decoded(name, claim_rows, act.now, most)
    ]
    found = orphans[:limit]
    _give_back(act, found)
    ends = _lose(act, found)
    if act.touched:
        conclude(act)
    cancelled, failed = ends[State.CANCELLED], ends[State.FAILED]
    names = (str(row[0]) for row in act.rows("handler_list_served", act.now))
    released = release_held(act, names, limit)
    leases = end_overdue(act, limit)
    cancelled_items, more = continue_cancelling(act, limit)
    _tidy(act)
    return Reclaimed(
        lost=len(found) - cancelled - failed,
        cancelled=cancelled + cancelled_items,
        failed=failed,
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


def _lose(act: Act, orphans: list[ClaimRow]) -> Counter[State]:
    """End the claims; how many tasks are in which state after that."""
    batches = statuses(act, {one.batch for one in orphans})
    ends = [(one, lost(one, batch=batches.get(one.batch), now=act.now)) for one in orphans]
    runs = [(one.id, end.run) for one, end in ends if end.run is not None]
    if runs:
        act.record(runs)
    alike: dict[tuple[State, str | None], list[tuple[ClaimRow, ClaimEnd]]] = {}
    for one, end in ends:
        alike.setdefault((end.state, end.reason), []).append((one, end))
    for group in alike.values():
        _write(act, group)
    for (queue, batch, state), n in Counter((one.queue, one.batch, end.state) for one, end in ends).items():
        act.moved(queue, "running", state.value, n, batch)
    for one, end in ends:
        for kind in kinds_of_end(end.state, lost=True):
            act.happened(kind, one.queue, one.handler)
    act.rings |= {one.queue for one, end in ends if one.capped or end.state not in FINISHED}
    ordered = [one.id for one, end in ends if end.state in FINISHED and one.order_key is not None]
    if ordered:
        release_next(act, ordered)
    failed = [one.id for one, end in ends if may_be_followed(end.state, end.reason)]
    if failed:
        follow(act, failed)
    return Counter(end.state for _, end in ends)


def _write(act: Act, group: list[tuple[ClaimRow, ClaimEnd]]) -> None:
    """Tasks that go to the same place for the same reason."""
    end, rows = group[0][1], json_list(one.row for one, _ in group)
    if end.state not in FINISHED:
        act.run("reclaim_lose", rows, end.state.value, end.reason)
        return
    error = end.error if isinstance(end.error, TaskError) else None
    said = (None, None) if error is None else (error_text(error), error.fingerprint)
    act.run("reclaim_end", rows, end.state.value, end.reason, *said, act.now)
    act.bulk("key_free", [(one.id, one.unique_key) for one, _ in group if one.unique_key is not None])


def _tidy(act: Act) -> None:
    """Remove old rows, and look at all lanes again: a promotion must not depend on a single act."""
    act.run("session_forget", act.now - HOUR)
    act.run("declarer_forget")
    act.run("binding_forget", act.now)
    act.run("departed_forget", act.now)
    act.run("strike_forget_old", act.now - STRIKES_KEPT)
    act.run("request_forget", act.now - REMEMBERED_FOR)
    rows: Iterable[Any] = act.rows("lane_list_queued")
    act.lanes.update(row[0] for row in rows)
