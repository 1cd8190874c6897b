"""Handing out tasks. The usual case, one queue whose tasks all fit, is one read and one write; the rest is sifted."""

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Any

import msgspec

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.lanes import Lane, open_lanes
from pitboss.engines.sqlite.rows import tags_of
from pitboss.model.errors import SessionLost
from pitboss.model.session import Claimed, ClaimRequest, Slot
from pitboss.model.task import Claim, Token

# Rows per read: params may be a mebibyte each, and one text must stay below SQLite's limit of a gigabyte.
_AT_ONCE = 250
# Bounds on what one claim does besides claiming; the next claim goes on.
_SWEPT_AT_ONCE = 1000
_PASSED_PER_LANE = 100


class Found(msgspec.Struct, array_like=True):
    """A pending task, in the order of the columns that the statements name; the first two are its rank."""

    priority: int
    id: str
    row: int
    handler: str
    queue: str
    params: str
    attempts: int
    max_attempts: int | None
    timeout: int | None
    losses: int
    crashes: int
    created_at: int
    expires_at: int | None
    parent: str | None
    tags: str | None
    claim: int
    unique_key: str | None


class _Sifted:
    """What a look at the pending tasks came to."""

    def __init__(self) -> None:
        self.taken: list[Found] = []
        self.expired: list[Found] = []
        self.strange: list[Found] = []
        self.cut = False


_found = msgspec.json.Decoder(list[Found])


def claim(act: Act, request: ClaimRequest) -> Claimed:
    """As the contract says."""
    if not act.one("session_alive", request.session, act.now):
        raise SessionLost(request.session)
    lanes = open_lanes(act, request.slots)
    wanted = sum(slot.free + slot.ahead for slot in request.slots)
    for lane in lanes.values():
        lane.promote(act, wanted)
        lane.measure(act)
    claims: list[Claim] = []
    cut = False
    for index, slot in enumerate(request.slots):
        found, short = _fill(act, slot, request, lanes)
        claims += [_claim_of(one, request.session, index, act.now) for one in found]
        cut = cut or short
    moments = [act.now] if cut else []
    moments += [moment for lane in lanes.values() if (moment := lane.next_moment(act)) is not None]
    return Claimed(claims, min(moments, default=None))


def _fill(act: Act, slot: Slot, request: ClaimRequest, lanes: dict[str, Lane]) -> tuple[list[Found], bool]:
    """The tasks for one slot, and whether bounds cut the look short."""
    names = lanes if slot.queues is None else dict.fromkeys(slot.queues)
    full = [lane for name in names if (lane := lanes.get(name)) is not None and lane.pending]
    if not full or slot.free + slot.ahead <= 0:
        return [], False
    taken, done = _take_in_order(act, slot, request, full[0]) if len(full) == 1 and not full[0].rate else ([], False)
    if done:
        return taken, False
    sifted = _sift(act, slot, request, full, len(taken))
    _sweep(act, sifted, lanes)
    _take(act, sifted.taken, request.session, lanes)
    return taken + sifted.taken, sifted.cut


def _take_in_order(act: Act, slot: Slot, request: ClaimRequest, lane: Lane) -> tuple[list[Found], bool]:
    """Take the first tasks of the only lane as long as all of them fit; False if one needs a closer look."""
    taken: list[Found] = []
    while lane.pending and (left := slot.free + slot.ahead - len(taken)):
        portion = act.decoded("claim_next", _found, lane.name, min(_AT_ONCE, left))
        if not portion:
            break
        if not _all_fit(portion, slot, request, act.now, len(taken)):
            return taken, False
        _take(act, portion, request.session, {lane.name: lane})
        taken += portion
    return taken, True


def _all_fit(portion: list[Found], slot: Slot, request: ClaimRequest, now: int, before: int) -> bool:
    handlers = request.handlers
    return all(
        (handlers is None or one.handler in handlers) and (one.expires_at is None or one.expires_at > now)
        for one in portion
    ) and not any(one.losses for one in islice(portion, max(0, slot.free - before), None))


def _sift(act: Act, slot: Slot, request: ClaimRequest, lanes: Sequence[Lane], before: int) -> _Sifted:
    """Go through the pending tasks of all lanes in their common order and decide each; nothing is written yet."""
    sifted, by_name = _Sifted(), {lane.name: lane for lane in lanes}
    others = _known_to_others(act, request)
    for one in merge(*(_candidates(act, lane, others) for lane in lanes), key=_rank):
        claimed = before + len(sifted.taken)
        if claimed >= slot.free + slot.ahead:
            break
        if len(sifted.expired) + len(sifted.strange) >= _SWEPT_AT_ONCE:
            sifted.cut = True
            break
        if one.expires_at is not None and one.expires_at <= act.now:
            sifted.expired.append(one)
        elif request.handlers is not None and one.handler not in request.handlers:
            sifted.strange.append(one)
        elif _may_take(one, by_name[one.queue], ahead=claimed >= slot.free):
            sifted.taken.append(one)
        else:
            by_name[one.queue].passed += 1
    return sifted


def _may_take(one: Found, lane: Lane, *, ahead: bool) -> bool:
    if ahead and (lane.rate or one.losses):
        return False
    if lane.room is not None:
        if lane.room == 0:
            return False
        lane.room -= 1
    return True


def _candidates(act: Act, lane: Lane, others: str) -> Iterator[Found]:
    """Pending tasks of a lane as they should run, without those that are for other sessions' handlers.

    A lane that cannot give, because its rate is used up, is left after a while, so that a backlog in it costs little.
    """
    lane.passed = 0
    for row in act.rows("claim_sift", lane.name, others, act.now):
        if lane.passed >= _PASSED_PER_LANE:
            return
        yield Found(*row)


def _known_to_others(act: Act, request: ClaimRequest) -> str:
    if request.handlers is None:
        return "[]"
    live: set[Any] = {row[0] for row in act.rows("live_handlers", act.now)}
    return json_list(live - request.handlers)


def _rank(one: Found) -> tuple[int, str]:
    return one.priority, one.id


def _take(act: Act, found: list[Found], session: int, lanes: dict[str, Lane]) -> None:
    if not found:
        return
    act.run("claim_take", session, act.now, json_list(one.row for one in found))
    for queue, n in Counter(one.queue for one in found).items():
        act.moved(queue, "pending", "running", n)
        lanes[queue].pending -= n
        lanes[queue].started(act, n)


def _sweep(act: Act, sifted: _Sifted, lanes: dict[str, Lane]) -> None:
    """Cancel what is past its expiry and hold what nobody knows."""
    if sifted.expired:
        act.run("claim_expire", act.now, json_list(one.row for one in sifted.expired))
        for one in sifted.expired:
            act.moved(one.queue, "pending", "cancelled")
            lanes[one.queue].pending -= 1
            if one.unique_key is not None:
                act.run("key_free", one.id, one.unique_key)
    if sifted.strange:
        act.run("claim_hold", json_list(one.row for one in sifted.strange))
        for one in sifted.strange:
            act.moved(one.queue, "pending", "held")
            lanes[one.queue].pending -= 1


def _claim_of(one: Found, session: int, slot: int, now: int) -> Claim:
    return Claim(
        id=one.id,
        token=Token(session, one.claim + 1),
        handler=one.handler,
        queue=one.queue,
        params=one.params,
        attempt=one.attempts + 1,
        priority=one.priority,
        max_attempts=one.max_attempts,
        timeout=one.timeout,
        losses=one.losses,
        crashes=one.crashes,
        created_at=one.created_at,
        claimed_at=now,
        expires_at=one.expires_at,
        parent=one.parent,
        tags=tags_of(one.tags),
        slot=slot,
    )
