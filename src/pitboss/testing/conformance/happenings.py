"""The log of happenings, and how long it and the audit log are kept."""

from typing import Any

import pytest

from pitboss.model.access import AuditEntry
from pitboss.model.duration import SECOND
from pitboss.model.errors import NotLeader
from pitboss.model.happening import Happening, Kind, Severity, floor_id, happening
from pitboss.testing.conformance.bench import Bench

_AWAY = "the store does not answer: 'connection' «refused», 100 % of the calls, {none} \\ \" left"


class HappeningLog:
    async def test_what_is_recorded_is_read_as_it_was(self, bench: Bench) -> None:
        one = _made(bench, Kind.STORE_AWAY, subject="store", text=_AWAY, host="h", manager=7, count=3, details={"a": 1})
        await bench.store.record_happenings([one])
        assert await bench.store.happenings() == [one]
        assert (one.severity, one.details) == (Severity.ERROR, '{"a":1}')

    async def test_a_happening_is_stored_once(self, bench: Bench) -> None:
        first, second = _made(bench, Kind.STORE_AWAY), _made(bench, Kind.STORE_BACK)
        await bench.store.record_happenings([first])
        await bench.store.record_happenings([first, second, second])
        assert await bench.store.happenings() == [second, first]

    async def test_none_is_nothing(self, bench: Bench) -> None:
        await bench.store.record_happenings([])
        assert await bench.store.happenings() == []

    async def test_happenings_are_read_newest_first_in_pages(self, bench: Bench) -> None:
        made = await _hour(bench)
        page = await bench.store.happenings(limit=25)
        assert page == made[::-1][:25]
        assert await bench.store.happenings(limit=100, before=page[-1].id) == made[::-1][25:]

    async def test_only_from_a_moment_on(self, bench: Bench) -> None:
        made = await _hour(bench)
        assert await bench.store.happenings(since=made[50].at) == made[:49:-1]
        assert await bench.store.happenings(since=made[-1].at + SECOND) == []

    async def test_only_some_kinds_and_subjects(self, bench: Bench) -> None:
        made = await _hour(bench)
        away = await bench.store.happenings(kinds=[Kind.STORE_AWAY])
        assert away == [one for one in made[::-1] if one.kind is Kind.STORE_AWAY]
        both = await bench.store.happenings(kinds=[Kind.STORE_AWAY, Kind.POOL_SCALED], subject="pool b")
        assert {one.subject for one in both} == {"pool b%", "pool b_x"}
        assert {one.kind for one in both} == {Kind.POOL_SCALED}
        assert await bench.store.happenings(subject="pool b_") == [one for one in both if one.subject == "pool b_x"]

    async def test_old_ones_are_forgotten_a_few_at_a_time(self, bench: Bench) -> None:
        made, term = await _hour(bench), await _term(bench)
        gone = [await bench.store.prune_happenings(made[40].at, keep=1000, limit=25, term=term) for _ in range(3)]
        assert gone == [25, 15, 0]
        assert await bench.store.happenings() == made[:39:-1]

    async def test_only_the_newest_are_kept(self, bench: Bench) -> None:
        made, term = await _hour(bench), await _term(bench)
        assert await bench.store.prune_happenings(None, keep=60, term=term) == 0
        assert await bench.store.prune_happenings(None, keep=10, limit=30, term=term) == 30
        assert await bench.store.prune_happenings(None, keep=10, term=term) == 20
        assert await bench.store.happenings() == made[::-1][:10]

    async def test_the_older_of_age_and_number_decides(self, bench: Bench) -> None:
        made, term = await _hour(bench), await _term(bench)
        assert await bench.store.prune_happenings(made[5].at, keep=50, term=term) == 10
        assert await bench.store.prune_happenings(made[20].at, keep=50, term=term) == 10
        assert await bench.store.happenings() == made[:19:-1]

    async def test_old_entries_of_the_audit_log_are_forgotten(self, bench: Bench) -> None:
        entries = [AuditEntry(id=bench.ids(), who="ann", act=f"act{number}") for number in range(4)]
        for entry in entries:
            await bench.store.audited(entry).wish("key", "1")
        bench.clock.advance(1)
        kept = AuditEntry(id=bench.ids(), who="ann", act="kept")
        await bench.store.audited(kept).wish("key", "2")
        term = await _term(bench)
        assert await bench.store.prune_audit(bench.now, limit=3, term=term) == 3
        assert await bench.store.prune_audit(bench.now, term=term) == 1
        assert [one.id for one in await bench.store.audit_log()] == [kept.id]

    async def test_only_the_leader_prunes(self, bench: Bench) -> None:
        made, term = await _hour(bench), await _term(bench)
        await bench.store.resign(bench.me.number)
        with pytest.raises(NotLeader):
            await bench.store.prune_happenings(bench.now + SECOND, keep=0, term=term)
        with pytest.raises(NotLeader):
            await bench.store.prune_audit(bench.now + SECOND, term=term)
        assert len(await bench.store.happenings()) == len(made)

    async def test_no_id_of_a_moment_is_below_its_floor(self, bench: Bench) -> None:
        assert floor_id(bench.now) <= bench.ids() < floor_id(bench.now + SECOND)


async def _hour(bench: Bench) -> list[Happening]:
    """Sixty of them, a minute apart."""
    subjects = ("pool a", "pool b%", "pool b_x", "store")
    made = []
    for number in range(60):
        kind = Kind.STORE_AWAY if number % 4 == 3 else Kind.POOL_SCALED
        made.append(_made(bench, kind, subject=subjects[number % 4]))
        bench.clock.advance(60)
    await bench.store.record_happenings(made)
    return made


async def _term(bench: Bench) -> int:
    bench.me = await bench.session("job", ttl=3600 * SECOND)
    return (await bench.store.campaign(bench.me.number)).term


def _made(bench: Bench, kind: Kind, *, subject: str = "store", text: str = "it happened", **about: Any) -> Happening:
    return happening(bench.ids(), bench.now, kind, subject, text, **about)


__all__ = ["HappeningLog"]
