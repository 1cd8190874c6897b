"""Claims of remote workers: they live by a time limit of their own. And the task types that remote workers run."""

from typing import Any

import pytest

from pitboss.model.duration import span
from pitboss.model.limits import rate
from pitboss.model.outcome import Completed, Failed, Outcome, Released, Transition, progressed
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import ORDERED, Order, Reclaimed, Session, Slot
from pitboss.model.settlement import (
    RAN_OUT,
    RAN_OUT_TOO_OFTEN,
    STALE_CLAIM,
    STALE_SESSION,
    STALE_TIME,
    SettleAnswer,
    Settlement,
)
from pitboss.model.states import State
from pitboss.model.task import Claim, NewTask, Unique
from pitboss.testing.conformance.bench import BROKEN, Bench

LASTS = span("10s")
_COMPLETED = Transition(state=State.COMPLETED, outcome="completed", charged=True)
VIDEO = HandlerInfo(name="video", queue="video", remote=True)


class TimeLimits:
    async def test_a_claim_has_its_time_limit_and_its_worker(self, bench: Bench) -> None:
        claim = await _claimed(bench, worker="w1")
        task = await bench.task(claim.id)
        assert (task.worker, task.claim_lasts, task.claim_expires_at) == ("w1", LASTS, bench.now + LASTS)
        assert claim.claim_expires_at == task.claim_expires_at

    async def test_a_claim_of_a_manager_has_none(self, bench: Bench) -> None:
        claim = await _claimed(bench)
        await bench.report(claim, Released())
        again = await bench.take()
        task = await bench.task(again.id)
        assert (again.claim_expires_at, task.worker, task.claim_lasts, task.claim_expires_at, task.claim_key) == (
            None,
            None,
            None,
            None,
            None,
        )

    async def test_it_outlives_its_session(self, bench: Bench) -> None:
        session = await bench.session("job", ttl=1_000)
        claim = await _claimed(bench, session=session)
        await bench.end(session)
        bench.clock.advance("1s")
        assert await bench.reclaim() == Reclaimed()
        assert (await bench.report(claim, Completed("1"))).applied
        assert (await bench.task(claim.id)).state is State.COMPLETED

    @pytest.mark.parametrize("outcome", [Completed("1"), Failed(BROKEN), Released(), None])
    async def test_past_its_limit_every_report_is_refused(self, bench: Bench, outcome: Outcome | None) -> None:
        claim = await _claimed(bench)
        bench.clock.advance_to(bench.now + LASTS)
        before = await bench.task(claim.id)
        answer = await (_sign(bench, claim, 50) if outcome is None else bench.report(claim, outcome))
        assert answer == STALE_TIME
        await bench.became(before)

    async def test_a_microsecond_before_its_limit_a_report_counts(self, bench: Bench) -> None:
        claim = await _claimed(bench)
        bench.clock.advance_to(bench.now + LASTS - 1)
        assert await bench.reclaim() == Reclaimed()
        assert (await bench.report(claim, Completed())).applied

    async def test_many_completions_beside_one_that_is_late(self, bench: Bench) -> None:
        late = await _claimed(bench)
        bench.clock.advance(5)
        others = [await _claimed(bench) for _ in range(3)]
        bench.clock.advance(5)
        claims = (others[0], late, *others[1:])
        done = [Settlement(id=one.id, token=one.token, queue="default", transition=_COMPLETED) for one in claims]
        answers = await bench.settle(*done)
        assert [answer.applied for answer in answers] == [True, False, True, True]

    @pytest.mark.parametrize("percent", [None, 40])
    async def test_a_sign_of_life_starts_the_limit_again(self, bench: Bench, percent: int | None) -> None:
        claim = await _claimed(bench)
        await _sign(bench, claim, 20)
        before = await bench.task(claim.id)
        bench.clock.advance(9)
        assert (await _sign(bench, claim, percent)).applied
        await bench.became(before, claim_expires_at=bench.now + LASTS, progress=percent or 20)
        bench.clock.advance(9)
        assert (await bench.report(claim, Completed())).applied

    async def test_a_sweep_gives_it_to_another_worker(self, bench: Bench) -> None:
        claim = await _claimed(bench, worker="w1")
        bench.clock.advance_to(bench.now + LASTS)
        before = await bench.task(claim.id)
        assert await bench.reclaim() == Reclaimed(lost=1)
        await bench.became(
            before, state=State.PENDING, outcome="lost", losses=1, crashes=1, session=None, started_at=None
        )
        (run,) = await bench.history(claim)
        assert (run.outcome, run.worker, run.attempt) == ("lost", "w1", 1)
        again = (await bench.ask(_slot(worker="w2"))).claims[0]
        assert (again.id, again.token.claim, again.attempt, again.crashes) == (claim.id, 2, 1, 1)
        assert (await bench.report(claim, Completed("1"))) in (STALE_CLAIM, STALE_SESSION)
        assert (await bench.report(again, Completed("2"))).applied

    async def test_three_claims_that_ran_out_make_the_task_failed(self, bench: Bench) -> None:
        claim = await _claimed(bench)
        for ended in range(3):
            bench.clock.advance_to(bench.now + LASTS)
            assert await bench.reclaim() == (Reclaimed(lost=1) if ended < 2 else Reclaimed(failed=1))
            if ended < 2:
                await bench.ask(_slot())
        task = await bench.task(claim.id)
        assert (task.state, task.reason, task.error) == (State.FAILED, RAN_OUT_TOO_OFTEN, RAN_OUT)
        assert (task.attempts, task.losses, task.crashes, task.finished_at) == (1, 3, 3, bench.now)
        assert [run.outcome for run in await bench.history(task)] == ["lost"] * 3
        assert await bench.reclaim() == Reclaimed()

    async def test_the_key_of_a_task_that_failed_so_is_free(self, bench: Bench) -> None:
        claim = await _claimed(bench, unique=Unique("only"))
        for _ in range(3):
            bench.clock.advance_to(bench.now + LASTS)
            await bench.reclaim()
            await bench.ask(_slot())
        assert (await bench.task(claim.id)).state is State.FAILED
        assert (await bench.add(unique=Unique("only"))).id != claim.id

    async def test_it_is_cancelled_if_that_was_asked(self, bench: Bench) -> None:
        claim = await _claimed(bench)
        await bench.cancel(claim.id, reason="stop it")
        bench.clock.advance_to(bench.now + LASTS)
        assert await bench.reclaim() == Reclaimed(cancelled=1)
        task = await bench.task(claim.id)
        assert (task.state, task.reason) == (State.CANCELLED, "stop it")

    async def test_a_sweep_is_limited_and_continued(self, bench: Bench) -> None:
        await bench.put(*(bench.new() for _ in range(5)))
        await bench.ask(_slot(free=5))
        bench.clock.advance_to(bench.now + LASTS)
        lost = 0
        for _ in range(5):
            lost += (await bench.reclaim(2)).lost
        assert lost == 5


class RepeatedClaims:
    async def test_the_same_key_gets_the_same_claims(self, bench: Bench) -> None:
        await bench.put(*(bench.new() for _ in range(3)))
        first = (await bench.ask(_slot(free=2, repeat="k"))).claims
        bench.clock.advance(5)
        again = (await bench.ask(_slot(free=2, repeat="k"))).claims
        assert [(claim.id, claim.token, claim.claim_expires_at) for claim in again] == [
            (claim.id, claim.token, claim.claim_expires_at) for claim in first
        ]
        assert len((await bench.ask(_slot(free=2, repeat="other"))).claims) == 1

    async def test_another_session_may_ask_again(self, bench: Bench) -> None:
        claim = await _claimed(bench, repeat="k")
        other = await bench.session("job")
        (again,) = (await bench.ask(_slot(repeat="k"), session=other)).claims
        assert again.token == claim.token
        assert (await bench.report(again, Completed())).applied

    async def test_a_claim_that_ended_is_not_given_again(self, bench: Bench) -> None:
        claim = await _claimed(bench, repeat="k")
        await bench.report(claim, Completed())
        assert (await bench.ask(_slot(repeat="k"))).claims == []

    async def test_a_claim_that_ran_out_is_not_given_again(self, bench: Bench) -> None:
        await _claimed(bench, repeat="k")
        bench.clock.advance_to(bench.now + LASTS)
        assert (await bench.ask(_slot(repeat="k"))).claims == []

    async def test_slots_with_and_without_keys_in_one_request(self, bench: Bench) -> None:
        claim = await _claimed(bench, repeat="k")
        other = await bench.add()
        claims = (await bench.ask(_slot(repeat="k"), _slot(worker="w2"), _slot(repeat="new", worker="w3"))).claims
        assert [(one.id, one.slot) for one in claims] == [(claim.id, 0), (other.id, 1)]
        assert (await bench.task(other.id)).worker == "w2"


class TaskTypes:
    async def test_its_tasks_are_pending_though_no_session_knows_it(self, bench: Bench) -> None:
        await bench.store.register([VIDEO])
        task = await bench.add(handler="video", queue="video")
        assert (await bench.ask(Slot(free=5, queues=("video",)), handlers=["job"])).claims == []
        await bench.became(task)
        assert task.state is State.PENDING

    async def test_a_sweep_releases_what_was_held_before_it_was_registered(self, bench: Bench) -> None:
        task = await bench.add(handler="video", queue="video")
        assert task.state is State.HELD
        await bench.store.register([VIDEO])
        await bench.became(task, state=State.PENDING, reason=None)

    async def test_a_slot_without_named_queues_leaves_out_queues_with_only_such_types(self, bench: Bench) -> None:
        await bench.store.register([VIDEO])
        video, mine = await bench.add(handler="video", queue="video"), await bench.add()
        claims = (await bench.ask(Slot(free=5), handlers=None)).claims
        assert [claim.id for claim in claims] == [mine.id]
        await bench.became(video)

    async def test_a_queue_that_also_has_another_handler_is_not_left_out(self, bench: Bench) -> None:
        await bench.store.register([VIDEO, HandlerInfo(name="cut", queue="video")])
        await bench.add(handler="video", queue="video")
        task = await bench.add(handler="cut", queue="video")
        claims = (await bench.ask(Slot(free=5), handlers=["cut", "job"])).claims
        assert [claim.id for claim in claims] == [task.id]

    async def test_a_slot_with_handlers_takes_only_their_tasks(self, bench: Bench) -> None:
        await bench.register("other")
        other, mine = await bench.add(handler="other"), await bench.add()
        claims = (await bench.ask(_slot(free=5, handlers=("job",)), handlers=None)).claims
        assert [claim.id for claim in claims] == [mine.id]
        await bench.became(other)

    async def test_slots_of_one_request_may_want_different_handlers(self, bench: Bench) -> None:
        await bench.register("other")
        mine, other = await bench.add(), await bench.add(handler="other")
        slots = (_slot(handlers=("other",), worker="a"), _slot(handlers=("job",), worker="b"))
        claims = (await bench.ask(*slots, handlers=None)).claims
        assert [(claim.id, claim.slot) for claim in claims] == [(other.id, 0), (mine.id, 1)]

    async def test_expired_tasks_are_cancelled_and_not_given(self, bench: Bench) -> None:
        task = await bench.add(expires_in=1_000)
        bench.clock.advance("1ms")
        assert (await bench.ask(_slot())).claims == []
        await bench.became(task, state=State.CANCELLED, reason="expired", finished_at=bench.now)

    async def test_a_paused_queue_gives_nothing(self, bench: Bench) -> None:
        await bench.add()
        await bench.change("default", paused=True)
        assert (await bench.ask(_slot())).claims == []

    async def test_a_rate_holds(self, bench: Bench) -> None:
        await bench.put(*(bench.new() for _ in range(5)))
        await bench.change("default", rate=rate("3/10s"))
        assert len((await bench.ask(_slot(free=2), _slot(free=2))).claims) == 3


class Ordering:
    @pytest.mark.parametrize(
        ("order", "expected"),
        [
            (None, [2, 0, 1, 3]),
            (Order("priority"), [2, 0, 1, 3]),
            (Order("priority", descending=True), [3, 0, 1, 2]),
            (Order("created_at"), [0, 1, 2, 3]),
            (Order("created_at", descending=True), [3, 2, 1, 0]),
            (Order("id"), [0, 1, 2, 3]),
            (Order("id", descending=True), [3, 2, 1, 0]),
            (Order("attempts"), [2, 1, 3, 0]),
            (Order("attempts", descending=True), [0, 2, 1, 3]),
        ],
    )
    async def test_a_slot_may_ask_for_another_order(
        self, bench: Bench, order: Order | None, expected: list[int]
    ) -> None:
        """Tasks with the same value keep the native order."""
        tasks: list[NewTask] = []
        for priority in (0, 0, -1, 5):
            bench.clock.advance("1ms")
            tasks.append(bench.new(priority=priority))
            await bench.put(tasks[-1])
            if len(tasks) == 1:
                await bench.report(await bench.take(), Failed(BROKEN))
        bench.clock.advance(5)
        given = [(await bench.ask(_slot(order=order))).claims[0].id for _ in tasks]
        assert given == [tasks[number].id for number in expected]

    async def test_other_handlers_do_not_use_up_the_look(self, bench: Bench) -> None:
        await bench.register("other")
        await bench.put(*(bench.new(handler="other") for _ in range(ORDERED + 1)))
        mine = await bench.add()
        order = Order("created_at", descending=True)
        assert (await bench.ask(_slot(order=order, handlers=("job",)))).claims[0].id == mine.id


def _slot(**options: Any) -> Slot:
    wanted: dict[str, Any] = {"free": 1, "queues": ("default",), "worker": "w", "lasts": LASTS} | options
    return Slot(**wanted)


async def _claimed(bench: Bench, *, session: Session | None = None, unique: Unique | None = None, **of: Any) -> Claim:
    """A new task, claimed by a remote worker."""
    task = await bench.add(unique=unique)
    (claim,) = (await bench.ask(_slot(**of), session=session)).claims
    assert claim.id == task.id
    return claim


async def _sign(bench: Bench, claim: Claim, percent: int | None) -> SettleAnswer:
    return await bench.write(claim, progressed(percent))
