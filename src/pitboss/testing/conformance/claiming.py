"""Claiming: which tasks a session gets, in which order."""

import pytest

from pitboss.model.errors import SessionLost
from pitboss.model.limits import rate
from pitboss.model.outcome import Released, Snooze
from pitboss.model.session import ClaimRequest, Slot
from pitboss.model.states import State
from pitboss.model.task import Claim, Token
from pitboss.testing.conformance.bench import Bench


class Claiming:
    async def test_a_claim_carries_what_is_needed_to_run_the_task(self, bench: Bench) -> None:
        task = await bench.add(
            queue="post",
            params='{"n":1}',
            priority=3,
            max_attempts=4,
            timeout=9_000,
            expires_in=60_000_000,
            tags=("a", "b"),
            parent=bench.ids(),
        )
        bench.clock.advance(2)
        claimed = await bench.ask(Slot(free=1))
        assert claimed.next_due is None
        assert claimed.claims == [
            Claim(
                id=task.id,
                token=Token(bench.me.number, 1),
                handler="job",
                queue="post",
                params='{"n":1}',
                attempt=1,
                priority=3,
                max_attempts=4,
                timeout=9_000,
                created_at=task.created_at,
                claimed_at=bench.now,
                expires_at=task.expires_at,
                parent=task.parent,
                tags=("a", "b"),
                slot=0,
                due_at=task.created_at,
            )
        ]

    async def test_a_claimed_task_is_running_for_its_session(self, bench: Bench) -> None:
        task = await bench.add()
        bench.clock.advance(1)
        claim = await bench.take()
        await bench.became(task, state=State.RUNNING, session=bench.me.number, claim=1, started_at=bench.now)
        assert not claim.alone

    async def test_a_task_is_given_once(self, bench: Bench) -> None:
        await bench.add()
        other = await bench.session("job")
        assert len(await bench.claim(5)) == 1
        assert await bench.claim(5) == []
        assert await bench.claim(5, session=other) == []

    async def test_nothing_to_do_is_an_empty_answer(self, bench: Bench) -> None:
        claimed = await bench.ask(Slot(free=3, ahead=2, queues=("nowhere",)))
        assert (claimed.claims, claimed.next_due) == ([], None)
        assert await bench.store.queues() == []

    async def test_lower_priority_numbers_run_first_then_older_tasks(self, bench: Bench) -> None:
        ranks = [5, 0, -1, 5, 0, 100, -1]
        tasks = [await bench.add(priority=rank) for rank in ranks]
        wanted = [task.id for task in sorted(tasks, key=lambda task: (task.priority, task.id))]
        assert [claim.id for claim in await bench.claim(10)] == wanted

    async def test_age_is_the_id_and_not_the_order_of_arrival(self, bench: Bench) -> None:
        older, younger = bench.new(), bench.new()
        await bench.put(younger)
        await bench.put(older)
        assert [claim.id for claim in await bench.claim(2)] == [older.id, younger.id]

    async def test_order_holds_over_all_queues_of_a_slot(self, bench: Bench) -> None:
        first = await bench.add(queue="b", priority=1)
        second = await bench.add(queue="a", priority=1)
        urgent = await bench.add(queue="c", priority=0)
        await bench.add(queue="d", priority=-1)
        claims = await bench.claim(5, "a", "b", "c")
        assert [claim.id for claim in claims] == [urgent.id, first.id, second.id]

    async def test_no_more_than_asked(self, bench: Bench) -> None:
        await bench.put(*(bench.new() for _ in range(5)))
        assert len(await bench.claim(2)) == 2
        assert (await bench.queue()).counts == {State.PENDING: 3, State.RUNNING: 2}

    async def test_no_room_no_claims(self, bench: Bench) -> None:
        await bench.add()
        assert await bench.claim(0) == []
        assert (await bench.ask(Slot(free=0, ahead=0), Slot(free=0))).claims == []

    async def test_slots_are_filled_in_order_and_each_claim_names_its_slot(self, bench: Bench) -> None:
        tasks = [await bench.add(queue="a") for _ in range(3)]
        other = await bench.add(queue="b")
        claimed = await bench.ask(
            Slot(free=2, queues=("a",)), Slot(free=5, queues=("b", "a")), Slot(free=1, queues=("a", "b"))
        )
        assert [(claim.slot, claim.id) for claim in claimed.claims] == [
            (0, tasks[0].id),
            (0, tasks[1].id),
            (1, tasks[2].id),
            (1, other.id),
        ]

    async def test_naming_a_queue_twice_gives_no_task_twice(self, bench: Bench) -> None:
        task = await bench.add(queue="a")
        assert [claim.id for claim in await bench.claim(5, "a", "a")] == [task.id]
        assert (await bench.task(task.id)).claim == 1

    async def test_a_slot_without_queues_takes_from_all(self, bench: Bench) -> None:
        tasks = [await bench.add(queue=name) for name in "xyz"]
        assert [claim.id for claim in await bench.claim(5)] == [task.id for task in tasks]

    async def test_a_slot_with_no_queue_at_all_takes_nothing(self, bench: Bench) -> None:
        await bench.add()
        assert (await bench.ask(Slot(free=5, queues=()))).claims == []

    async def test_ahead_gives_more_than_free(self, bench: Bench) -> None:
        await bench.put(*(bench.new() for _ in range(5)))
        assert len((await bench.ask(Slot(free=1, ahead=2))).claims) == 3

    async def test_ahead_alone_gives_too(self, bench: Bench) -> None:
        await bench.put(*(bench.new() for _ in range(3)))
        assert len((await bench.ask(Slot(free=0, ahead=2))).claims) == 2

    async def test_a_lost_task_is_given_to_a_free_place_but_never_ahead(self, bench: Bench) -> None:
        gone = await bench.session("job")
        lost = await bench.add()
        await bench.take(session=gone)
        fresh = [await bench.add(), await bench.add()]
        await bench.end(gone)
        await bench.reclaim()
        ahead = await bench.ask(Slot(free=0, ahead=1))
        assert [claim.id for claim in ahead.claims] == [fresh[0].id]
        claims = (await bench.ask(Slot(free=1, ahead=5))).claims
        assert [(claim.id, claim.losses, claim.alone) for claim in claims] == [
            (lost.id, 1, True),
            (fresh[1].id, 0, False),
        ]

    async def test_a_rated_queue_gives_nothing_ahead(self, bench: Bench) -> None:
        await bench.change("rated", rate=rate("100/s"))
        tasks = [await bench.add(queue="rated") for _ in range(3)]
        plain = await bench.add(queue="plain")
        claims = (await bench.ask(Slot(free=1, ahead=5))).claims
        assert [claim.id for claim in claims] == [tasks[0].id, plain.id]

    async def test_a_paused_queue_gives_nothing_and_others_do(self, bench: Bench) -> None:
        await bench.add(queue="shut")
        other = await bench.add(queue="open")
        await bench.change("shut", paused=True)
        assert [claim.id for claim in await bench.claim(5)] == [other.id]
        assert await bench.claim(5, "shut") == []
        await bench.change("shut", paused=False)
        assert len(await bench.claim(5)) == 1

    async def test_a_scheduled_task_is_given_when_its_time_has_come(self, bench: Bench) -> None:
        task = await bench.add(delay=5_000_000)
        claimed = await bench.ask()
        assert (claimed.claims, claimed.next_due) == ([], task.run_at)
        bench.clock.advance("4999999us")
        assert (await bench.ask()).claims == []
        bench.clock.advance("1us")
        claimed = await bench.ask()
        assert ([claim.id for claim in claimed.claims], claimed.next_due) == ([task.id], None)

    async def test_tasks_that_fell_due_are_pending_even_if_they_are_not_taken(self, bench: Bench) -> None:
        tasks = [await bench.add(delay=1_000), await bench.add(delay=2_000)]
        elsewhere = await bench.add(queue="else", delay=1_000)
        bench.clock.advance(1)
        assert len(await bench.claim(1, "default")) == 1
        await bench.became(tasks[1], state=State.PENDING)
        await bench.became(elsewhere)

    async def test_next_due_is_the_earliest_of_the_asked_queues(self, bench: Bench) -> None:
        await bench.add(queue="a", delay=9_000)
        sooner = await bench.add(queue="a", delay=5_000)
        await bench.add(queue="b", delay=1_000)
        assert (await bench.ask(Slot(free=1, queues=("a",)))).next_due == sooner.run_at
        await bench.change("b", paused=True)
        assert (await bench.ask(Slot(free=1))).next_due == sooner.run_at

    async def test_next_due_is_told_to_a_slot_without_room(self, bench: Bench) -> None:
        task = await bench.add(delay=5_000)
        assert (await bench.ask(Slot(free=0))).next_due == task.run_at

    async def test_an_expired_task_is_cancelled_and_not_given(self, bench: Bench) -> None:
        task = await bench.add(expires_in=1_000)
        good = await bench.add()
        bench.clock.advance("1ms")
        assert [claim.id for claim in await bench.claim(1)] == [good.id]
        await bench.became(task, state=State.CANCELLED, reason="expired", finished_at=bench.now)
        assert await bench.history(task) == []

    async def test_a_microsecond_before_its_expiry_a_task_is_given(self, bench: Bench) -> None:
        task = await bench.add(expires_in=1_000)
        bench.clock.advance("999us")
        assert (await bench.take()).id == task.id

    async def test_a_scheduled_task_may_expire_before_it_is_given(self, bench: Bench) -> None:
        task = await bench.add(delay=1_000, expires_in=2_000)
        bench.clock.advance(1)
        claimed = await bench.ask()
        assert (claimed.claims, claimed.next_due) == ([], None)
        await bench.became(task, state=State.CANCELLED, reason="expired", finished_at=bench.now)

    @pytest.mark.parametrize("fate", ["ended", "expired", "never opened"])
    async def test_a_dead_session_gets_nothing_and_is_told(self, bench: Bench, fate: str) -> None:
        task = await bench.add()
        session = await bench.session("job")
        if fate == "ended":
            await bench.end(session)
        elif fate == "expired":
            bench.clock.advance_to(session.expires_at)
        number = 987_654 if fate == "never opened" else session.number
        with pytest.raises(SessionLost) as lost:
            await bench.store.claim(ClaimRequest(session=number, slots=(Slot(free=1),)))
        assert lost.value.session == number
        await bench.became(task)

    async def test_the_claim_number_grows_with_every_claim(self, bench: Bench) -> None:
        await bench.add()
        for number in range(1, 4):
            claim = await bench.take()
            assert (claim.token.claim, claim.attempt) == (number, 1)
            await bench.report(claim, Released())

    async def test_fewer_places_than_tasks_over_several_queues_lose_none(self, bench: Bench) -> None:
        tasks = [await bench.add(queue=queue, priority=n % 2) for n in range(3) for queue in ("a", "b", "c")]
        given: list[str] = []
        for _ in range(5):
            claims = await bench.claim(2)
            given += [claim.id for claim in claims]
            running = {task.id for task in tasks if (await bench.task(task.id)).state is State.RUNNING}
            assert running == set(given), "a task runs that no claim returned"
        assert given == [task.id for task in sorted(tasks, key=lambda task: (task.priority, task.id))]

    async def test_a_claim_clears_reason_progress_and_note(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.progress(claim, 40, "almost")
        await bench.report(claim, Snooze(1_000_000, "later, please"))
        waiting = await bench.task(claim.id)
        assert (waiting.reason, waiting.progress, waiting.note) == ("later, please", 40, "almost")
        bench.clock.advance(1)
        again = await bench.take()
        await bench.became(
            waiting,
            state=State.RUNNING,
            claim=again.token.claim,
            started_at=bench.now,
            reason=None,
            progress=None,
            note=None,
        )
