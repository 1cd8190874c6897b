"""Ready members for tasks that wait: read and locked as needed, chosen and granted here, written together."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pitboss.engines.postgres import members
from pitboss.engines.postgres.members import Member
from pitboss.engines.postgres.rows import numbers, texts
from pitboss.engines.postgres.script import Ask, Row, Script, Statements
from pitboss.engines.postgres.use_history import Unread, UseHistory
from pitboss.model.duration import Moment
from pitboss.model.leasing import avoided, granted, shortage, takes_turns, turn_floor
from pitboss.model.member_health import KEPT_TRIED
from pitboss.model.picking import ANY, ReadyMembers
from pitboss.model.resource import PoolRules, Resource, Shortage, Stage, Want

_Labels = tuple[str, ...]
_Kind = tuple[str, _Labels]
_MOST_READ_AHEAD = 256


class Need(NamedTuple):
    """What a task needs from a pool."""

    pool: str
    want: Want = ANY
    tried: tuple[str, ...] = ()


class MemberGrants:
    """The members that one transaction may give. It never waits: members that another one has locked are skipped."""

    def __init__(self, sql: Statements, now: Moment | None, floors: dict[str, int] | None = None) -> None:
        self._sql, self._clock = sql, now
        self.now: Moment | None = now
        self.rules: dict[str, PoolRules] = {}
        self.contended = False
        self._uses = UseHistory()
        self._ready: dict[str, ReadyMembers] = {}
        self._known: dict[str, Member] = {}
        self._given: dict[str, None] = {}
        self._exhausted: set[_Kind] = set()
        self._carrying: dict[_Kind, int] = {}
        # Key -> the member that it is bound to. A key that another transaction is binding is missing.
        self._bound: dict[tuple[str, str], Resource | None] = {}
        self._bindings: dict[tuple[str, str], tuple[str, Moment]] = {}
        self._short: set[_Kind] = set()
        # Pool -> the floor of turns, as it was before the first grant.
        self._floors: dict[str, int] = {} if floors is None else floors

    def load(self, needs: Sequence[Need], most: int) -> Script[None]:
        """Read and lock the members that these needs may get, `most` of them in all: the first ones of each kind, and
        those that keys are bound to."""
        if not needs:
            return
        named = yield from self._load_keys({(need.pool, need.want.key) for need in needs if need.want.key is not None})
        limits = self._limits(_kinds(needs, most))
        locked: list[Row] = []
        if limits or named:
            yield self._locking(limits, named).into(locked)
        pools = {need.pool for need in needs}
        self.now, rules = yield from members.rules_now(self._sql, pools, self._clock)
        self.rules |= rules
        yield from self._read_floors(pools)
        fresh = [one for one in self._found(limits, locked) if one.resource.id not in self._known]
        for one in fresh:
            self._known[one.resource.id] = one
            self._ready.setdefault(one.resource.pool, ReadyMembers()).put(one.resource)
        yield from members.read_uses(self._sql, self._uses, fresh, self.rules)
        yield from self._count({(need.pool, need.want.labels) for need in needs if need.tried})

    def lack(self, pools: Iterable[str], now: Moment) -> None:
        """Tasks wait for members of these pools, in which none was ready."""
        self.now = now
        kinds: set[_Kind] = {(pool, ()) for pool in pools}
        self._short |= kinds
        self._exhausted |= kinds

    def has_ready(self, pool: str) -> bool:
        return pool in self._ready and len(self._ready[pool]) > 0

    def give(self, need: Need) -> Script[Resource | None]:
        """Grant the need a member; None if there is none for it now."""
        chosen = self._choose(need)
        if chosen is None:
            self._short.add((need.pool, need.want.labels))
            return None
        number, rules = self._known[chosen.id].number, self.rules[need.pool]
        given = yield from self._granted(number, chosen, rules)
        self._known[given.id] = Member(number, given)
        self._ready[need.pool].put(given)
        self._given[given.id] = None
        if need.want.key is not None:
            self._bound[need.pool, need.want.key] = given
            self._bindings[need.pool, need.want.key] = (given.name, (self.now or 0) + rules.bound_for)
        return given

    def write(self) -> Script[None]:
        yield from self._uses.write_shifted(self._sql)
        yield from members.write(self._sql, [self._known[one] for one in sorted(self._given)], self.rules, self._uses)
        if self._bindings:
            bound = sorted((pool, key, name, until) for (pool, key), (name, until) in self._bindings.items())
            yield self._sql.ask(
                "binding_set",
                pools=texts([pool for pool, _, _, _ in bound]),
                keys=texts([key for _, key, _, _ in bound]),
                names=texts([name for _, _, name, _ in bound]),
                untils=numbers([until for _, _, _, until in bound]),
            ).unheard()

    def shortages(self) -> Script[list[Shortage]]:
        """Why needs were not met, read after `write`. A pool whose members were only locked is left out."""
        if not self._short:
            return []
        short = sorted(self._short)
        rows = yield self._sql.ask(
            "pool_shortage",
            pools=texts([pool for pool, _ in short]),
            labels=texts([texts(labels) for _, labels in short]),
            seen=numbers(sorted(one.number for one in self._known.values())),
        )
        # All members of an exhausted kind were read. A ready one that was not seen is locked by another transaction.
        busy = {kind[0] for kind, row in zip(short, rows, strict=True) if row[3] and kind in self._exhausted}
        self.contended |= bool(busy)
        found = {pool: (stage, until) for pool, stage, until, _ in rows if pool not in busy}
        return [_shortage(pool, *found[pool]) for pool in sorted(found)]

    def _choose(self, need: Need) -> Resource | None:
        rules, ready = self.rules[need.pool], self._ready.setdefault(need.pool, ReadyMembers())
        shunned = avoided(need.tried, self._carrying[need.pool, need.want.labels]) if need.tried else frozenset[str]()
        if need.want.key is None:
            return ready.choose(need.want, shunned, None, rules)
        place = (need.pool, need.want.key)
        bound = self._bound.get(place)
        locked_by_others = bound is not None and bound.stage is Stage.READY and bound.id not in self._known
        if place not in self._bound or locked_by_others:
            self.contended = True
            return None
        return ready.choose(need.want, shunned, bound, rules)

    def _granted(self, number: int, chosen: Resource, rules: PoolRules) -> Script[Resource]:
        """Where one member is given many times, read more of its uses, four times as many each time."""
        ahead = 2
        while True:
            try:
                floor = self._floors.get(chosen.pool, 0)
                given = granted(chosen, rules, self._uses.nth(number, chosen), self.now or 0, floor)
                self._uses.add(number, given, rules)
            except Unread:
                if ahead < _MOST_READ_AHEAD:
                    yield from members.read_uses(self._sql, self._uses, [Member(number, chosen)], self.rules, ahead)
                    ahead *= 4
                else:
                    yield from members.read_all_uses(self._sql, self._uses, number)
            else:
                return given

    def _read_floors(self, pools: Iterable[str]) -> Script[None]:
        wanted = sorted(pool for pool in pools if pool not in self._floors and takes_turns(self.rules[pool]))
        if wanted:
            self._floors |= dict.fromkeys(wanted, 0)
            for row in (yield self._sql.ask("member_last_ready", pools=texts(wanted))):
                last = members.member(row).resource
                self._floors[last.pool] = turn_floor(last)

    def _load_keys(self, keys: set[tuple[str, str]]) -> Script[list[tuple[str, str]]]:
        """Lock the keys; the members (pool, name) that they are bound to. Keys that others have locked are skipped."""
        wanted = sorted(keys - self._bound.keys())
        if not wanted:
            return []
        free = sorted((yield self._sql.ask("binding_lock", **_pairs(wanted))))
        self._bound |= dict.fromkeys(free)
        named: list[tuple[str, str]] = []
        for key, *row in (yield self._sql.ask("binding_members", self._clock, **_pairs(free))):
            found = members.member(tuple(row)).resource
            self._bound[found.pool, key] = found
            named.append((found.pool, found.name))
        return named

    def _limits(self, kinds: dict[_Kind, int]) -> dict[_Kind, int]:
        """How many members of each kind to read in all, for kinds that are not exhausted."""
        return {kind: len(self._given) + most for kind, most in kinds.items() if kind not in self._exhausted}

    def _locking(self, limits: dict[_Kind, int], named: Sequence[tuple[str, str]]) -> Ask:
        return self._sql.ask(
            "member_lock_ready",
            pools=texts([pool for pool, _ in limits]),
            labels=texts([texts(labels) for _, labels in limits]),
            limits=numbers(list(limits.values())),
            named_pools=texts([pool for pool, _ in named]),
            names=texts([name for _, name in named]),
        )

    def _found(self, limits: dict[_Kind, int], rows: Sequence[Row]) -> list[Member]:
        found = [members.member(row) for row in rows]
        for (pool, labels), most in limits.items():
            fitting = {one.number for one in found if one.resource.pool == pool and {*labels} <= {*one.resource.labels}}
            if len(fitting) < most:
                self._exhausted.add((pool, labels))
        return list({one.number: one for one in found}.values())

    def _count(self, kinds: Iterable[_Kind]) -> Script[None]:
        wanted = sorted(set(kinds) - self._carrying.keys())
        if not wanted:
            return
        rows = yield self._sql.ask(
            "member_serving",
            self.now,
            pools=texts([pool for pool, _ in wanted]),
            labels=texts([texts(labels) for _, labels in wanted]),
            most=KEPT_TRIED + 2,
        )
        self._carrying |= {kind: row[2] for kind, row in zip(wanted, rows, strict=True)}


def _kinds(needs: Sequence[Need], most: int) -> dict[_Kind, int]:
    """How many members of each kind are needed: one for each need, and those that a need may avoid."""
    waiting = Counter(need.pool for need in needs)
    avoiding: dict[str, int] = {}
    for need in needs:
        avoiding[need.pool] = max(avoiding.get(need.pool, 0), len(need.tried))
    return {(need.pool, need.want.labels): min(waiting[need.pool], most) + avoiding[need.pool] for need in needs}


def _shortage(pool: str, stage: str | None, until: Moment | None) -> Shortage:
    return shortage(pool, {} if stage is None else {Stage(stage): 1}, until)


def _pairs(keys: Sequence[tuple[str, str]]) -> dict[str, object]:
    return {"pools": texts([pool for pool, _ in keys]), "keys": texts([key for _, key in keys])}
