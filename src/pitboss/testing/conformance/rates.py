"""Rates: no span as long as a window has more starts than the window allows, wherever the span begins."""

import pytest

from pitboss.model.limits import Window, rate
from pitboss.model.outcome import Released
from pitboss.model.session import Slot
from pitboss.testing.conformance.bench import Bench
from pitboss.testing.conformance.outcomes import ONCE, transition_for


async def _rated(bench: Bench, text: str, tasks: int) -> None:
    await bench.change("r", rate=rate(text))
    await bench.put(*(bench.new(queue="r") for _ in range(tasks)))


class Rates:
    async def test_a_window_gives_no_more_than_its_count(self, bench: Bench) -> None:
        await _rated(bench, "3/s", 5)
        claimed = await bench.ask(Slot(free=10))
        assert len(claimed.claims) == 3
        assert claimed.next_due == bench.now + 1_000_000
        assert await bench.claim(10) == []

    async def test_a_start_counts_for_exactly_its_window(self, bench: Bench) -> None:
        await _rated(bench, "1/s", 2)
        await bench.take()
        bench.clock.advance("999999us")
        claimed = await bench.ask(Slot(free=10))
        assert (claimed.claims, claimed.next_due) == ([], bench.now + 1)
        bench.clock.advance("1us")
        claimed = await bench.ask(Slot(free=10))
        assert (len(claimed.claims), claimed.next_due) == (1, None)

    async def test_the_window_slides(self, bench: Bench) -> None:
        await _rated(bench, "2/10s", 6)
        begin, starts = bench.now, []
        for _ in range(25):
            starts += [bench.now - begin] * len(await bench.claim(10))
            bench.clock.advance(1)
        assert starts == [0, 0, 10_000_000, 10_000_000, 20_000_000, 20_000_000]

    async def test_single_starts_open_the_window_one_by_one(self, bench: Bench) -> None:
        await _rated(bench, "2/10s", 4)
        await bench.take()
        bench.clock.advance(4)
        await bench.take()
        claimed = await bench.ask()
        assert (claimed.claims, claimed.next_due) == ([], bench.now + 6_000_000)
        bench.clock.advance(6)
        claimed = await bench.ask(Slot(free=5))
        assert (len(claimed.claims), claimed.next_due) == (1, bench.now + 4_000_000)

    async def test_every_window_must_allow_a_start(self, bench: Bench) -> None:
        await _rated(bench, "2/s, 3/10s", 9)
        begin, given = bench.now, []
        for _ in range(4):
            claimed = await bench.ask(Slot(free=9))
            given.append((bench.now - begin, len(claimed.claims)))
            assert claimed.next_due is not None
            bench.clock.advance_to(claimed.next_due)
        assert given == [(0, 2), (1_000_000, 1), (10_000_000, 2), (11_000_000, 1)]

    async def test_the_order_of_windows_means_nothing(self, bench: Bench) -> None:
        await bench.change("r", rate=(Window(3, 10_000_000), Window(1, 1_000_000)))
        await bench.put(*(bench.new(queue="r") for _ in range(5)))
        assert len(await bench.claim(5)) == 1
        for _ in range(2):
            bench.clock.advance(1)
            assert len(await bench.claim(5)) == 1
        claimed = await bench.ask(Slot(free=5))
        assert (claimed.claims, claimed.next_due) == ([], bench.now + 8_000_000)

    @pytest.mark.parametrize("name", ONCE)
    async def test_a_start_stays_counted_whatever_comes_of_it(self, bench: Bench, name: str) -> None:
        await _rated(bench, "1/s", 2)
        claim = await bench.take()
        await bench.write(claim, transition_for(name, claim, bench.now))
        assert await bench.claim(5) == []

    async def test_a_lost_and_reclaimed_task_needs_a_new_start(self, bench: Bench) -> None:
        await _rated(bench, "1/s", 1)
        await bench.take()
        await bench.end(bench.me)
        await bench.reclaim()
        other = await bench.session("job")
        assert await bench.claim(session=other) == []
        bench.clock.advance(1)
        assert len(await bench.claim(session=other)) == 1

    async def test_slots_and_sessions_share_one_window(self, bench: Bench) -> None:
        await _rated(bench, "3/s", 9)
        other = await bench.session("job")
        claimed = await bench.ask(Slot(free=2), Slot(free=2, queues=("r",)))
        assert [claim.slot for claim in claimed.claims] == [0, 0, 1]
        assert await bench.claim(5, session=other) == []

    async def test_queues_have_windows_of_their_own(self, bench: Bench) -> None:
        await _rated(bench, "1/s", 3)
        await bench.change("s", rate=rate("2/s"))
        await bench.put(*(bench.new(queue="s") for _ in range(3)))
        plain = await bench.add(queue="plain")
        claims = await bench.claim(9)
        assert sorted(claim.queue for claim in claims) == ["plain", "r", "s", "s"]
        assert plain.id in [claim.id for claim in claims]

    async def test_a_closed_window_does_not_stop_the_slot_s_other_queues(self, bench: Bench) -> None:
        await _rated(bench, "1/h", 3)
        tasks = [await bench.add(queue="plain", priority=9) for _ in range(2)]
        claims = await bench.claim(3)
        assert [claim.id for claim in claims[1:]] == [task.id for task in tasks]

    async def test_next_due_names_no_window_without_pending_tasks(self, bench: Bench) -> None:
        await _rated(bench, "1/s", 1)
        assert (await bench.ask(Slot(free=5))).next_due is None

    async def test_next_due_names_no_window_that_is_open(self, bench: Bench) -> None:
        await _rated(bench, "2/s", 3)
        assert (await bench.ask(Slot(free=1))).next_due is None

    async def test_next_due_names_no_window_of_a_paused_queue(self, bench: Bench) -> None:
        await _rated(bench, "1/s", 2)
        await bench.take()
        await bench.change("r", paused=True)
        assert (await bench.ask()).next_due is None

    async def test_next_due_is_the_earlier_of_window_and_schedule(self, bench: Bench) -> None:
        await _rated(bench, "1/s", 2)
        task = await bench.add(queue="plain", delay=500_000)
        claimed = await bench.ask(Slot(free=5))
        assert (len(claimed.claims), claimed.next_due) == (1, task.run_at)

    async def test_a_task_held_back_by_its_rate_keeps_its_rank(self, bench: Bench) -> None:
        await _rated(bench, "1/s", 3)
        urgent = await bench.add(queue="r", priority=-1)
        assert (await bench.take()).id == urgent.id
        bench.clock.advance(1)
        first = await bench.take()
        await bench.report(first, Released())
        bench.clock.advance(1)
        assert (await bench.take()).id == first.id

    async def test_a_queue_says_when_its_rate_allows_the_next_start(self, bench: Bench) -> None:
        await _rated(bench, "2/10s, 3/h", 9)
        assert (await bench.queue("r")).opens_at is None
        first = bench.now
        await bench.take()
        assert (await bench.queue("r")).opens_at is None
        bench.clock.advance(4)
        await bench.take()
        assert (await bench.queue("r")).opens_at == first + 10_000_000
        assert (await bench.change("r", paused=True)).opens_at == first + 10_000_000
        await bench.change("r", paused=False)
        bench.clock.advance(6)
        assert (await bench.queue("r")).opens_at is None
        await bench.take()
        assert (await bench.queue("r")).opens_at == first + 3_600_000_000
        assert (await bench.change("r", rate=())).opens_at is None

    async def test_a_removed_rate_gives_all(self, bench: Bench) -> None:
        await _rated(bench, "1/h", 4)
        await bench.take()
        await bench.change("r", rate=())
        claimed = await bench.ask(Slot(free=9))
        assert (len(claimed.claims), claimed.next_due) == (3, None)

    async def test_a_raised_count_counts_what_has_started(self, bench: Bench) -> None:
        await _rated(bench, "1/h", 5)
        await bench.take()
        await bench.change("r", rate=rate("3/h"))
        assert len(await bench.claim(9)) == 2

    async def test_a_lowered_count_waits_until_enough_starts_are_out_of_the_window(self, bench: Bench) -> None:
        await _rated(bench, "3/10s", 9)
        for _ in range(3):
            await bench.take()
            bench.clock.advance(1)
        await bench.change("r", rate=rate("1/10s"))
        claimed = await bench.ask()
        assert (claimed.claims, claimed.next_due) == ([], bench.now + 9_000_000)
