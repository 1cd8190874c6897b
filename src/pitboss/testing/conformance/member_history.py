"""What happened to a member: its newest state changes and errors, and how long its answers take."""

from pitboss.model.duration import SECOND
from pitboss.model.member_history import KEPT, LONGEST
from pitboss.model.resource import MINUTE, Entry, EntryKind, NewResource, Report, ResourceOutcome, Want
from pitboss.testing.conformance.bench import Bench
from pitboss.testing.conformance.scarcity import (
    BLOCKED,
    FAULTY,
    NOT_MINE,
    OK,
    UNLIMITED,
    add,
    change,
    failed,
    member,
    pool,
    served,
)

EU = Want(labels=("eu",))
A = NewResource(name="a", labels=EU.labels)


async def _used(bench: Bench, *reports: Report | None) -> None:
    """Use the member once for each report, a second apart."""
    for report in reports:
        await failed(bench, await served(bench, want=EU), report)
        bench.clock.advance(1)


async def _history(bench: Bench) -> tuple[Entry, ...]:
    return (await member(bench, "a")).record.history


async def _said(bench: Bench) -> list[tuple[str, str | None]]:
    return [(entry.what, entry.why) for entry in await _history(bench)]


def _error(text: str) -> Report:
    return Report(outcome=ResourceOutcome.RESOURCE_ERROR, error=text)


class MemberHistory:
    async def test_a_member_that_works_has_none(self, bench: Bench) -> None:
        await pool(bench, A)
        await _used(bench, OK, None, NOT_MINE, OK)
        assert await _history(bench) == ()

    async def test_failures_then_the_blacklist_then_back(self, bench: Bench) -> None:
        await pool(bench, A, "b", max_failures=3, blacklist=MINUTE)
        began = bench.now
        await _used(bench, FAULTY, FAULTY, FAULTY)
        bench.clock.advance("1m")
        back = bench.now
        await _used(bench, OK, OK)
        away = began + 2 * SECOND
        assert await _history(bench) == (
            Entry(began + SECOND, EntryKind.FAILED, "connection refused", times=2),
            Entry(away, EntryKind.BLACKLISTED, "connection refused", away + MINUTE),
            Entry(back, EntryKind.BACK),
        )

    async def test_a_refusal_has_its_end_and_its_reason(self, bench: Bench) -> None:
        await pool(bench, A, cooldown=MINUTE)
        began = bench.now
        slow = Report(outcome=ResourceOutcome.RATE_LIMITED, retry_after=5 * SECOND, error="status 429")
        await _used(bench, slow)
        bench.clock.advance("10s")
        await _used(bench, BLOCKED)
        assert [(entry.what, entry.why, entry.until) for entry in await _history(bench)] == [
            ("cooling", "status 429", began + 5 * SECOND),
            ("cooling", "blocked", began + 11 * SECOND + 2 * MINUTE),
        ]

    async def test_a_good_use_that_began_before_it_was_sent_away_does_not_bring_it_back(self, bench: Bench) -> None:
        await pool(bench, A, cooldown=MINUTE, limits=UNLIMITED)
        refused, good = await served(bench, want=EU), await served(bench, want=EU)
        await failed(bench, refused, BLOCKED)
        await failed(bench, good, OK)
        assert await _said(bench) == [("cooling", "blocked")]
        bench.clock.advance("1m")
        await _used(bench, OK)
        assert await _said(bench) == [("cooling", "blocked"), ("back in service", None)]

    async def test_a_failed_request_that_is_not_blamed_on_it_is_told_apart(self, bench: Bench) -> None:
        await pool(bench, A)
        site = Report(outcome=ResourceOutcome.TASK_ERROR, error="status 503", destination="shop")
        await _used(bench, site, Report(outcome=ResourceOutcome.TASK_ERROR, error="KeyError: 'price'"))
        assert await _said(bench) == [("failed, not blamed yet", "status 503")]

    async def test_operators_and_renewed_secrets(self, bench: Bench) -> None:
        await pool(bench, A)
        await change(bench, "a", enabled=False, reason="looks slow")
        await change(bench, "a", enabled=False, reason="again")
        await change(bench, "a", enabled=True, reason="tested by hand")
        await change(bench, "a", secrets={"cookie": "sealed-1", "word": "sealed-2"})
        await change(bench, "a", secrets={"cookie": "sealed-3", "word": "sealed-2"})
        await add(bench, NewResource(name="a", labels=EU.labels, secrets={"cookie": "sealed-4", "word": "sealed-2"}))
        await change(bench, "a", reset=True)
        await _used(bench, FAULTY)
        await change(bench, "a", reset=True)
        assert await _said(bench) == [
            ("disabled", "looks slow"),
            ("enabled", "tested by hand"),
            ("secrets renewed", "cookie, word"),
            ("secrets renewed", "cookie"),
            ("failed", "connection refused"),
            ("reset", None),
        ]
        assert (await _history(bench))[3].times == 2

    async def test_only_the_newest_are_kept_and_long_errors_are_cut(self, bench: Bench) -> None:
        await pool(bench, A, max_failures=99)
        await _used(bench, *(_error(f"{number:02} {'long ' * 99}") for number in range(KEPT + 2)))
        history = await _history(bench)
        assert [int(str(entry.why)[:2]) for entry in history] == [*range(2, KEPT + 2)]
        assert {len(str(entry.why)) for entry in history} == {LONGEST}

    async def test_how_long_answers_take_is_an_average_in_which_the_newest_counts_most(self, bench: Bench) -> None:
        await pool(bench, A)
        told = []
        for took in (1_000_000, None, 2_000_000, 100_000):
            await _used(bench, Report(outcome=ResourceOutcome.OK, took=took))
            told.append((await member(bench, "a")).record.took)
        assert told == [1_000_000, 1_000_000, 1_300_000, 940_000]
