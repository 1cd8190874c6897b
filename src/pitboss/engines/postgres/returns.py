"""Members that are given back in this transaction: locked first, judged one after the other, written together."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pitboss.engines.postgres import members
from pitboss.engines.postgres.count_changes import CountChanges
from pitboss.engines.postgres.members import Member
from pitboss.engines.postgres.rows import names, texts
from pitboss.engines.postgres.script import Row, Script, Statements
from pitboss.engines.postgres.use_history import Unread, UseHistory
from pitboss.model.duration import Moment
from pitboss.model.leasing import ended
from pitboss.model.member_health import (
    STRIKES_KEPT,
    forgiven,
    given_back,
    is_fault,
    is_good,
    may_eject,
    room_on_blacklist,
)
from pitboss.model.outdone import SentAway, may_send_away, outdone
from pitboss.model.picking import same_member
from pitboss.model.resource import PoolRules, Report, Resource, UseEnd


class Return(NamedTuple):
    """A member (pool/name) that was held since a moment and is given back, with the report on its use."""

    resource: str
    since: Moment
    report: Report | None = None
    tried: Sequence[str] = ()
    completed: bool = False
    use_end: UseEnd | None = None

    @property
    def pool(self) -> str:
        return self.resource.split("/", 1)[0]

    @property
    def fault(self) -> bool:
        return self.report is not None and is_fault(self.report.outcome)

    @property
    def blames(self) -> bool:
        """Whether it may change other members: see `GivenBack`."""
        return self.fault or (self.completed and bool(self.tried) and is_good(self.report))


class Returns:
    """The returns of one transaction. Lock order: pools in which a member is to blame, members by number."""

    def __init__(self, sql: Statements) -> None:
        self._sql = sql
        self.now: Moment = 0
        self._pools: set[str] = set()
        self._rules: dict[str, PoolRules] = {}
        self._members: dict[str, Member] = {}
        self._uses, self._use_rows = UseHistory(), list[Row]()
        self._changed: dict[str, None] = {}
        self._strikers: dict[tuple[str, str], dict[str, Moment]] = {}
        self._struck: dict[tuple[str, str], dict[str, None]] = {}
        self._answered: dict[tuple[str, str], None] = {}
        self._with_strikes: set[str] = set()

    def lock(self, returns: Sequence[Return], *, now: Moment | None = None) -> Script[None]:
        """Lock all that these returns may change. The rules are read behind the locks: see `members.rules_now`."""
        blaming = [one for one in returns if one.blames]
        if blaming:
            yield self._sql.ask("pool_lock", names=names(one.pool for one in blaming))
            yield from self._read_strikers([one for one in blaming if one.fault])
        blamed = {f"{one.pool}/{name}" for one in blaming for name in one.tried}
        blamed |= {f"{pool}/{name}" for (pool, _), struck in self._strikers.items() for name in struck}
        wanted = {one.resource for one in returns} | blamed
        if not any(one.use_end for one in returns):
            self._members = yield from members.locked(self._sql, wanted)
            return
        rows: list[Row] = []
        yield members.locking(self._sql, wanted).into(rows)
        _, self._rules = yield from members.rules_now(self._sql, {one.pool for one in returns}, now)
        self._members = members.by_id(rows)

    def locked(self, rows: Sequence[Row], rules: Sequence[Row] = ()) -> None:
        """Note members that were locked by another statement, where none is to blame; and rules read behind that."""
        self._members = members.by_id(rows)
        self._rules = {name: members.rules_of(text) for _, name, text in rules if name is not None}

    def read_uses(self, returns: Iterable[Return]) -> Script[None]:
        """Ask for the uses that `take` needs to end open ones, together with the next statement. Rules are known."""
        ending = {one.resource for one in returns if one.use_end is not None}
        known = [self._members[one] for one in sorted(ending & self._members.keys())]
        rules = {one.resource.pool: self._rules.get(one.resource.pool, PoolRules()) for one in known}
        asked = members.reading_uses(self._sql, self._uses, known, rules, members.NEWEST)
        if asked is not None:
            yield asked.into(self._use_rows)

    @property
    def locked_pools(self) -> set[str]:
        """The pools of the locked members."""
        return {one.resource.pool for one in self._members.values()}

    def read_rules(self, now: Moment | None) -> Script[None]:
        """Read the rules, and the moment that holds from here on."""
        self.now, self._rules = yield from members.rules_now(self._sql, self.locked_pools, now)

    def note_rules(self, rows: Sequence[Row]) -> None:
        """As `read_rules`, from the rows of another statement."""
        self._rules = dict.fromkeys(self.locked_pools, PoolRules())
        for _, what, one, other, *_ in rows:
            if what == "now":
                self.now = int(one)
            elif what == "rules":
                self._rules[one] = members.rules_of(other)
            elif what == "struck":
                self.note_strikes(one)

    def note_strikes(self, pool: str) -> None:
        """Members of the pool have strikes: only then is there anything to forget."""
        self._with_strikes.add(pool)

    def take(self, one: Return) -> Script[list[SentAway]]:
        """Give one back; the members that this sends away. One that is gone, or a new one of the same name, is not
        changed."""
        held = self._members.get(one.resource)
        if held is None or not same_member(held.resource, one.since):
            return []
        rules = self._rules[held.resource.pool]
        resource = held.resource if one.use_end is None else (yield from self._end_use(held, one.use_end, rules))
        self._pools.add(resource.pool)
        room = True
        if one.report is not None and may_eject(resource, rules, one.report):
            room = yield from self._has_room(resource, rules)
        known = {"tried": one.tried, "strikers": self._strikers_of(resource.pool, one.report)}
        back = given_back(resource, rules, one.report, self.now, **known, room=room, completed=one.completed)
        self._put(back.member)
        for name in back.forgiven:
            other = self._members.get(f"{resource.pool}/{name}")
            if other is not None:
                self._put(forgiven(other.resource, struck=back.struck))
        if back.strike is not None and one.report is not None and one.report.destination is not None:
            self._note_strike((resource.pool, one.report.destination), resource.name, struck=back.strike)
        away: list[SentAway] = []
        for name in back.outdone:
            away += yield from self._outdone(f"{resource.pool}/{name}", rules)
        return away

    def write(self, counts: CountChanges) -> Script[None]:
        """Write the members together with the counts of tasks, and ring the queues of their pools."""
        counts.pools |= self._pools
        counts.now = self.now
        changed = [self._members[one] for one in sorted(self._changed)]
        yield from self._uses.write_shifted(self._sql)
        yield from members.write(self._sql, changed, self._rules, counts=counts)
        answered = sorted(place for place in self._answered if place[0] in self._with_strikes)
        if answered:
            yield self._sql.ask("strike_forget", **_keys(answered))
        struck = sorted((pool, place, name) for (pool, place), those in self._struck.items() for name in those)
        if struck:
            keys = _keys([(pool, place) for pool, place, _ in struck])
            yield self._sql.ask("strike_add", self.now, **keys, names=texts([name for _, _, name in struck]))

    def _end_use(self, held: Member, end: UseEnd, rules: PoolRules) -> Script[Resource]:
        """The member after the end of its open use."""
        number, resource = held
        self._uses.note_rows(self._use_rows)
        self._use_rows.clear()
        nth = self._uses.nth(number, resource)
        try:
            change = ended(resource, rules, nth, end, self.now)
        except Unread:
            yield from members.read_all_uses(self._sql, self._uses, number)
            change = ended(resource, rules, nth, end, self.now)
        if change is None:
            return resource
        self._uses.shift(number, resource.record.uses, change.newest)
        return change.member

    def _put(self, resource: Resource) -> None:
        self._members[resource.id] = self._members[resource.id]._replace(resource=resource)
        self._changed[resource.id] = None

    def _strikers_of(self, pool: str, report: Report | None) -> list[str]:
        """The members that failed on the report's destination and are still remembered for it."""
        if report is None or report.destination is None:
            return []
        known = self._strikers.get((pool, report.destination), {})
        return [name for name, at in known.items() if at > self.now - STRIKES_KEPT]

    def _note_strike(self, place: tuple[str, str], name: str, *, struck: bool) -> None:
        if struck:
            self._strikers.setdefault(place, {})[name] = self.now
            self._struck.setdefault(place, {})[name] = None
        else:
            self._strikers.pop(place, None)
            self._struck.pop(place, None)
            self._answered[place] = None

    def _read_strikers(self, faults: Sequence[Return]) -> Script[None]:
        places = {(one.pool, one.report.destination) for one in faults if one.report and one.report.destination}
        if not places:
            return
        wanted = sorted((pool, destination) for pool, destination in places)
        for pool, place, name, at in (yield self._sql.ask("strike_list", **_keys(wanted))):
            self._strikers.setdefault((pool, place), {})[name] = at

    def _outdone(self, member: str, rules: PoolRules) -> Script[list[SentAway]]:
        """A task that failed with this member has succeeded with another."""
        held = self._members.get(member)
        if held is None:
            return []
        others, room = list[int](), True
        if may_send_away(held.resource, self.now):
            others = yield from self._compared(held.resource)
            room = yield from self._has_room(held.resource, rules)
        after, away = outdone(held.resource, rules, self.now, others=others, room=room)
        self._put(after)
        return [] if away is None else [away]

    def _compared(self, resource: Resource) -> Script[list[int]]:
        """The compared uses of the other enabled members, some of which this transaction has changed."""
        ours = [one.resource for one in self._members.values() if one.resource.pool == resource.pool]
        besides = texts([one.name for one in ours])
        rows = yield self._sql.ask("member_compared", pool=resource.pool, besides=besides)
        changed = [one.record.compared for one in ours if one.enabled and one.name != resource.name]
        return [*changed, *(row[0] for row in rows)]

    def _has_room(self, resource: Resource, rules: PoolRules) -> Script[bool]:
        """Whether the blacklist has room, counting what this transaction has changed but not written yet."""
        ours = [one.resource for one in self._members.values() if one.resource.pool == resource.pool]
        besides = texts([one.name for one in ours])
        ((enabled, ejected),) = yield self._sql.ask("member_blacklisted", self.now, pool=resource.pool, besides=besides)
        others = (one for one in ours if one.enabled and one.name != resource.name)
        ejected += sum(one.record.blacklisted_until > self.now for one in others)
        return room_on_blacklist(rules, enabled, ejected)


def _keys(places: Sequence[tuple[str, str]]) -> dict[str, object]:
    return {"pools": texts([pool for pool, _ in places]), "destinations": texts([place for _, place in places])}
