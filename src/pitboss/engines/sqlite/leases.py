"""Leases without a task, and further uses of a member that is held."""

from typing import Any

import msgspec

from pitboss.engines.sqlite.act import Act
from pitboss.engines.sqlite.grants import PoolGrants
from pitboss.engines.sqlite.pool_members import PoolMembers
from pitboss.engines.sqlite.returns import Returns, pool_of
from pitboss.model.duration import Moment, Span
from pitboss.model.errors import MemberRemoved, StaleLease
from pitboss.model.ids import TaskId
from pitboss.model.picking import leased
from pitboss.model.resource import Leased, Report, Shortage, UseEnd, Want
from pitboss.model.task import Token

_leased = msgspec.json.Decoder(Leased)


class _Held(msgspec.Struct, array_like=True):
    """The row of a lease."""

    pool: str
    member: int
    until: Moment
    leased: str


def acquire(act: Act, pool: str, want: Want, hold: Span, lease: str) -> Leased | Shortage:
    """As the contract says."""
    held = _lease(act, lease)
    if held is not None and held.until > act.now:
        return msgspec.structs.replace(_leased.decode(held.leased), expires_at=held.until)
    if held is not None:
        _end(act, lease, held.pool, held.member, None)
    members = PoolMembers(act, pool)
    grants = PoolGrants(members, 1)
    number = grants.grant(want, ())
    grants.write()
    if number is None:
        return members.shortage()
    until = act.now + hold
    given = leased(members.known[number], members.rules, act.now, lease=lease, expires_at=until)
    act.run("lease_put", lease, pool, number, until, msgspec.json.encode(given).decode())
    return given


def release(act: Act, lease: str, report: Report | None, use_end: UseEnd | None) -> bool:
    """As the contract says."""
    held = _lease(act, lease)
    if held is None or held.until <= act.now:
        return False
    _end(act, lease, held.pool, held.member, report, use_end)
    return True


def extend(act: Act, lease: str, hold: Span) -> Moment | None:
    """As the contract says."""
    held = _lease(act, lease)
    if held is None or held.until <= act.now:
        return None
    act.run("lease_extend", lease, act.now + hold)
    return act.now + hold


def use(
    act: Act, holder: Token | str, task: TaskId | None, instead: Moment | None, ends: UseEnd | None
) -> Moment | Shortage:
    """As the contract says."""
    held = _held_by(act, holder, task)
    if held is None:
        raise StaleLease(_spoken(holder, task))
    members, number = held
    if members.member(number) is None:
        raise MemberRemoved(_name(act, holder, task))
    if ends is not None and members.end_use(number, ends):
        members.ring()
    answer = members.use(number, instead)
    members.write()
    return answer


def end_use(act: Act, holder: Token | str, task: TaskId | None, end: UseEnd) -> None:
    """As the contract says."""
    held = _held_by(act, holder, task)
    if held is None or held[0].member(held[1]) is None:
        return
    members, number = held
    if members.end_use(number, end):
        members.ring()
    members.write()


def end_overdue(act: Act, limit: int) -> int:
    """Give back what is held past its time; how many leases ended."""
    over: list[Any] = list(act.rows("lease_list_over", act.now, limit))
    returns = Returns(act)
    for lease, pool, number in over:
        act.run("lease_end", lease)
        returns.take_back(pool, number, None)
    returns.write()
    return len(over)


def _lease(act: Act, lease: str) -> _Held | None:
    row: Any = act.one("lease_get", lease)
    return None if row is None else _Held(*row)


def _end(act: Act, lease: str, pool: str, number: int, report: Report | None, use_end: UseEnd | None = None) -> None:
    act.run("lease_end", lease)
    returns = Returns(act)
    returns.take_back(pool, number, report, use_end=use_end)
    returns.write()


def _held_by(act: Act, holder: Token | str, task: TaskId | None) -> tuple[PoolMembers, int] | None:
    """The pool and the number of the member that is held, and may be gone; None if it is not held any more."""
    if isinstance(holder, Token):
        row: Any = act.one("claim_held", task, holder.session, holder.claim, act.now)
        found = None if row is None or row[1] is None else (pool_of(row[0]), row[1])
    else:
        held = _lease(act, holder)
        found = None if held is None or held.until <= act.now else (held.pool, held.member)
    return None if found is None else (PoolMembers(act, found[0]), found[1])


def _name(act: Act, holder: Token | str, task: TaskId | None) -> str:
    """The member that is held, and may be gone."""
    if isinstance(holder, Token):
        row: Any = act.one("claim_held", task, holder.session, holder.claim, act.now)
        return str(row[0])
    held = _lease(act, holder)
    return _leased.decode(held.leased).id if held is not None else holder


def _spoken(holder: Token | str, task: TaskId | None) -> str:
    return str(holder) if task is None else f"{holder} of task {task}"
