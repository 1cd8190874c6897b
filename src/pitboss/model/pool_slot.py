"""Slots: the places of workers, with numbers that count over all hosts of a worker pool."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from pitboss.model.duration import Moment
from pitboss.model.errors import Refused
from pitboss.model.session import Session
from pitboss.model.text import listed, ranges

# Added to the node's name in slots that were asked for by their number.
_EXACT = "~only"


class PoolSlot(msgspec.Struct, frozen=True, kw_only=True):
    """The place of one worker. `number` counts over all hosts of the worker pool, `place` over the workers of a node.

    `node` is a manager's name: another manager under that name, a restarted one, gets the same numbers. `queues` are
    those of the pool; None: all. `live`: its session is alive.
    """

    pool: str
    number: int
    node: str
    place: int
    session: int
    queues: tuple[str, ...] | None = None
    live: bool = False

    @property
    def name(self) -> str:
        return slot_name(self.pool, self.number)

    def serves(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues


def slot_name(pool: str, number: int) -> str:
    return f"{pool}/{number}"


def is_kept(session: Session | None, now: Moment) -> bool:
    """Whether a slot still belongs to its node: while the session lives; after an orderly end, or one that a successor
    has proved, as long again, so that a restart moves no key."""
    if session is None:
        return False
    return session.alive(now) or (session.ended and now < session.expires_at + session.info.ttl)


def seated(
    kept: Sequence[PoolSlot],
    sessions: Mapping[int, Session],
    session: Session,
    pool: str,
    node: str,
    places: Iterable[int],
    queues: tuple[str, ...] | None,
    *,
    exact: bool = False,
) -> list[PoolSlot]:
    """The slots of a session's workers at these places, by place. `kept` are the pool's slots that belong to a node.

    A place has the number that it had in this process or on this node, else the number of the place if that is free,
    else the lowest free one. A second manager with this node's name gets a name of its own, until no slot has the
    plain one any more. `exact`: each place has its own number, also if that is kept for a session that has ended;
    `Refused` if a living manager has it.
    """
    wanted = sorted(set(places))
    if exact:
        refuse_taken(pool, taken_by_others(kept, sessions, session, wanted))
        # Not the node's name: a restarted manager without `exact` finds its own numbers under that.
        node, numbers = f"{node}{_EXACT}", {place: place for place in wanted}
    else:
        mine = [one for one in kept if _same_process(sessions.get(one.session), session)]
        node = _own_node([one for one in kept if one not in mine], node, known=bool(mine))
        numbers = _numbers(kept, mine, node, wanted)
    return [
        PoolSlot(
            pool=pool, number=numbers[place], node=node, place=place, session=session.number, queues=queues, live=True
        )
        for place in wanted
    ]


def taken_by_others(
    kept: Sequence[PoolSlot], sessions: Mapping[int, Session], session: Session, wanted: Collection[int]
) -> list[PoolSlot]:
    """Those of a pool's slots with these numbers that other living managers have."""
    return [
        one
        for one in kept
        if one.number in wanted and one.live and not _same_process(sessions.get(one.session), session)
    ]


def refuse_taken(pool: str, taken: Sequence[PoolSlot]) -> None:
    """A worker that was asked for by its number gets that slot or none: with another number it has other keys."""
    if not taken:
        return
    named = ranges(one.number for one in taken)
    raise Refused(
        f"slot {named} of pool {pool} is taken" if len(taken) == 1 else f"slots {named} of pool {pool} are taken",
        why=f"another living manager has {'it' if len(taken) == 1 else 'them'} "
        f"({listed(sorted({f'node {one.node}, session {one.session}' for one in taken}))})",
        fix="stop that manager, or start this one with other numbers of --only; pitboss partitions show has the slots",
    )


def _numbers(kept: Sequence[PoolSlot], mine: Sequence[PoolSlot], node: str, wanted: Sequence[int]) -> dict[int, int]:
    had = {one.place: one for one in (*(one for one in kept if one.node == node), *mine)}
    numbers = {place: had[place].number for place in wanted if place in had}
    used = {one.number for one in kept if one.node != node and one not in mine} | {*numbers.values()}
    for place in wanted:
        if place not in numbers:
            numbers[place] = place if place not in used else _lowest(used)
            used.add(numbers[place])
    return numbers


def _own_node(others: Sequence[PoolSlot], node: str, *, known: bool) -> str:
    """The name, or one that is free. A manager that had slots (`known`) leaves the plain name to its predecessor while
    that may come back."""
    taken = {one.node for one in others if one.live or known}
    name, n = node, 1
    while name in taken:
        n += 1
        name = f"{node}~{n}"
    return name


def _same_process(one: Session | None, other: Session) -> bool:
    """A manager that changes its session: the old one is still alive."""
    if one is None or one.number == other.number:
        return True
    a, b = one.info, other.info
    return a.pid != 0 and (a.host, a.boot_id, a.pid) == (b.host, b.boot_id, b.pid)


def _lowest(used: Collection[int]) -> int:
    return next(number for number in range(len(used) + 1) if number not in used)
