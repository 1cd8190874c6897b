"""Members that are given back in this transaction: locked first, judged one after the other, written together."""

from collections.abc import Sequence
from typing import NamedTuple

from pitboss.engines.postgres import members
from pitboss.engines.postgres.count_changes import CountChanges
from pitboss.engines.postgres.members import Member
from pitboss.engines.postgres.rows import names, texts
from pitboss.engines.postgres.script import Row, Script, Statements
from pitboss.model.duration import Moment
from pitboss.model.leasing import STRIKES_KEPT, forgiven, given_back, is_fault, may_eject, room_on_blacklist
from pitboss.model.picking import same_member
from pitboss.model.resource import PoolRules, Report, Resource


class Return(NamedTuple):
    """A member (pool/name) that was held since a moment and is given back, with the report on its use."""

    resource: str
    since: Moment
    report: Report | None = None
    tried: Sequence[str] = ()

    @property
    def pool(self) -> str:
        return self.resource.split("/", 1)[0]

    @property
    def fault(self) -> bool:
        return self.report is not None and is_fault(self.report.outcome)


class Returns:
    """The returns of one transaction. Lock order: pools in which a member is to blame, members by number."""

    def __init__(self, sql: Statements) -> None:
        self._sql = sql
        self.now: Moment = 0
        self._pools: set[str] = set()
        self._rules: dict[str, PoolRules] = {}
        self._members: dict[str, Member] = {}
        self._changed: dict[str, None] = {}
        self._strikers: dict[tuple[str, str], dict[str, Moment]] = {}
        self._struck: dict[tuple[str, str], dict[str, None]] = {}
        self._answered: dict[tuple[str, str], None] = {}

    def lock(self, returns: Sequence[Return]) -> Script[None]:
        """Lock all that these returns may change. The rules are read behind the locks: see `members.rules_now`."""
        faults = [one for one in returns if one.fault]
        if faults:
            yield self._sql.ask("pool_lock", names=names(one.pool for one in faults))
            yield from self._read_strikers(faults)
        blamed = {f"{one.pool}/{name}" for one in faults for name in one.tried}
        blamed |= {f"{pool}/{name}" for (pool, _), struck in self._strikers.items() for name in struck}
        self._members = yield from members.locked(self._sql, {one.resource for one in returns} | blamed)

    def locked(self, rows: Sequence[Row]) -> None:
        """Note members that were locked by another statement, where none is to blame."""
        self._members = members.by_id(rows)

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
        for _, what, one, other in rows:
            if what == "now":
                self.now = int(one)
            elif what == "rules":
                self._rules[one] = members.rules_of(other)

    def take(self, one: Return) -> Script[None]:
        """Give one back. A member that is gone, or a new one of the same name, is not changed."""
        held = self._members.get(one.resource)
        if held is None or not same_member(held.resource, one.since):
            return
        resource, rules = held.resource, self._rules[held.resource.pool]
        self._pools.add(resource.pool)
        room = True
        if one.report is not None and may_eject(resource, rules, one.report):
            room = yield from self._has_room(resource, rules)
        strikers = self._strikers_of(resource.pool, one.report)
        back = given_back(resource, rules, one.report, self.now, tried=one.tried, strikers=strikers, room=room)
        self._put(back.member)
        for name in back.forgiven:
            known = self._members.get(f"{resource.pool}/{name}")
            if known is not None:
                self._put(forgiven(known.resource))
        if back.strike is not None and one.report is not None and one.report.destination is not None:
            self._note_strike((resource.pool, one.report.destination), resource.name, struck=back.strike)

    def write(self, counts: CountChanges) -> Script[None]:
        """Write the members together with the counts of tasks, and ring the queues of their pools."""
        counts.pools |= self._pools
        changed = [self._members[one] for one in sorted(self._changed)]
        yield from members.write(self._sql, changed, self._rules, counts=counts)
        if self._answered:
            yield self._sql.ask("strike_forget", **_keys(sorted(self._answered)))
        struck = sorted((pool, place, name) for (pool, place), those in self._struck.items() for name in those)
        if struck:
            keys = _keys([(pool, place) for pool, place, _ in struck])
            yield self._sql.ask("strike_add", self.now, **keys, names=texts([name for _, _, name in struck]))

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
