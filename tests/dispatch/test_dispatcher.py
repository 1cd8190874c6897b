"""The dispatcher from outside, in virtual time."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from pitboss.dispatch.dispatcher import Dispatcher
from pitboss.engines.memory import MemoryEngine
from pitboss.engines.protocol import Page
from pitboss.model.duration import SECOND, span
from pitboss.model.errors import StoreUnavailable
from pitboss.model.filter import by
from pitboss.model.limits import rate
from pitboss.model.outcome import Completed, Failed, Outcome, Snooze
from pitboss.model.queue import QueueChange
from pitboss.model.session import Claimed, ClaimRequest, Renewal
from pitboss.model.settlement import SettleAnswer, Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim, TaskError
from pitboss.testing.clock import FakeClock
from pitboss.testing.virtual import run_virtual
from pitboss.upkeep.sweep import reclaim
from tests.dispatch.stage import Stage, taking

BROKEN = Failed(TaskError(category="error", message="broken"))


def test_everything_put_is_run_once() -> None:
    stage = Stage()

    async def main() -> None:
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher, taking(0.01))
        stage.worker(dispatcher, taking(0.02), name="w2")
        await dispatcher.start()
        await stage.put(500)
        await stage.until_finished()
        await dispatcher.stop()

    run_virtual(main(), clock=stage.clock)
    assert len(stage.started) == 500
    assert len({claim.id for _, _, claim in stage.started}) == 500
    assert all(verdict.applied for _, verdict in stage.verdicts)


def test_a_worker_never_holds_more_than_its_capacity() -> None:
    stage = Stage()

    async def main() -> int:
        dispatcher = stage.dispatcher()
        worker = stage.worker(dispatcher, taking(0.5), capacity=3)
        await stage.put(30)
        await dispatcher.start()
        await stage.until_finished()
        await dispatcher.stop()
        return worker.most

    assert run_virtual(main(), clock=stage.clock) == 3


def test_a_new_task_starts_at_once_when_a_worker_is_idle() -> None:
    stage = Stage()

    async def main() -> float:
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher)
        await dispatcher.start()
        await asyncio.sleep(0.3)
        put_at = stage.clock.now()
        await stage.put()
        await stage.until_finished()
        await dispatcher.stop()
        return (stage.started[0][0] - put_at) / SECOND

    assert run_virtual(main(), clock=stage.clock) < 0.001


def test_quick_tasks_are_claimed_by_the_hundred_and_slow_ones_by_the_one() -> None:
    def sizes(seconds: float, count: int) -> list[int]:
        asked: list[int] = []

        class Watched(MemoryEngine):
            async def claim(self, request: ClaimRequest) -> Claimed:
                claimed = await super().claim(request)
                asked.append(len(claimed.claims))
                await asyncio.sleep(0.002)
                return claimed

        clock = FakeClock()
        stage = Stage(Watched(clock=clock))
        stage.clock = clock

        async def main() -> None:
            dispatcher = stage.dispatcher()
            stage.worker(dispatcher, taking(seconds), capacity=8)
            await stage.put(count)
            await dispatcher.start()
            await stage.until_finished()
            await dispatcher.stop()

        run_virtual(main(), clock=clock)
        return [size for size in asked if size]

    quick, slow = sizes(0.0005, 5000), sizes(5, 30)
    assert max(quick) > 100
    assert max(slow[1:]) <= 8
    assert sum(slow) == 30


def test_a_failed_task_is_tried_again_after_its_backoff_and_then_set_aside() -> None:
    stage = Stage()

    async def main() -> list[float]:
        async def break_down(_: Claim) -> Outcome:
            return BROKEN

        dispatcher = stage.dispatcher()
        stage.worker(dispatcher, break_down)
        await dispatcher.start()
        (task,) = await stage.put()
        await stage.until_finished()
        await dispatcher.stop()
        assert (await stage.one(task)).state is State.FAILED
        return [round((b[0] - a[0]) / SECOND, 1) for a, b in zip(stage.started, stage.started[1:], strict=False)]

    assert run_virtual(main(), clock=stage.clock) == [1.0, 3.0]


def test_a_snoozed_task_costs_no_attempt() -> None:
    stage = Stage()

    async def main() -> int:
        async def later(claim: Claim) -> Outcome:
            return Snooze(SECOND) if claim.token.claim < 10 else Completed("1")

        dispatcher = stage.dispatcher()
        stage.worker(dispatcher, later)
        await dispatcher.start()
        (task,) = await stage.put()
        await stage.until_finished()
        await dispatcher.stop()
        return (await stage.one(task)).attempts

    assert run_virtual(main(), clock=stage.clock) == 1


def test_a_dead_worker_gives_its_tasks_back_at_once_and_no_attempt_is_spent() -> None:
    stage = Stage()

    async def main() -> None:
        dispatcher = stage.dispatcher()
        doomed = stage.worker(dispatcher, taking(100), capacity=5)
        ids = await stage.put(5)
        await dispatcher.start()
        await asyncio.sleep(0.5)
        doomed.kill()
        lost = dispatcher.remove_worker("w1")
        assert {claim.id for claim in lost} == set(ids)
        second = stage.worker(dispatcher, taking(0.1), name="w2", capacity=5)
        await stage.until_finished()
        await dispatcher.stop()
        for task in await stage.tasks():
            assert (task.state, task.attempts, task.losses, task.crashes) == (State.COMPLETED, 1, 1, 0)
        # Each had been lost, so each ran alone, although the worker has more slots.
        assert second.most == 1

    run_virtual(main(), clock=stage.clock)


def hire_until_found(stage: Stage, dispatcher: Dispatcher, bomb: str, *, fuse: float, seconds: float) -> list[str]:
    """A worker, and another one each time that the bomb has killed it; returns their names, as they come."""
    names: list[str] = []

    def hire() -> None:
        name = f"w{len(names) + 1}"
        names.append(name)

        async def work(claim: Claim) -> Outcome:
            if claim.id == bomb:
                await asyncio.sleep(fuse)
                worker.kill()
                dispatcher.remove_worker(name)
                hire()
            await asyncio.sleep(seconds)
            return Completed("null")

        worker = stage.worker(dispatcher, work, name=name, capacity=51)

    hire()
    return names


def test_a_bomb_among_innocents_is_the_only_one_that_fails() -> None:
    stage = Stage()

    async def main() -> None:
        dispatcher = stage.dispatcher()
        ids = await stage.put(51)
        bomb = ids[25]
        hire_until_found(stage, dispatcher, bomb, fuse=0.05, seconds=0.2)
        await dispatcher.start()
        await stage.until_finished()
        await dispatcher.stop()
        for task in await stage.tasks():
            if task.id == bomb:
                assert task.state is State.FAILED
                assert task.error is not None
                assert task.error.category == "poison"
                assert task.crashes == 3
            else:
                assert (task.state, task.attempts, task.crashes) == (State.COMPLETED, 1, 0)

    run_virtual(main(), clock=stage.clock)


@pytest.mark.parametrize(("lost", "within"), [(1, 4), (8, 30)])
def test_long_tasks_that_were_lost_keep_others_out_only_for_a_while(lost: int, within: float) -> None:
    stage = Stage()

    async def main() -> None:
        dispatcher = stage.dispatcher()
        doomed = stage.worker(dispatcher, taking(3600), capacity=16)
        long = set(await stage.put(lost))
        await dispatcher.start()
        await asyncio.sleep(0.5)
        doomed.kill()
        dispatcher.remove_worker("w1")
        (quick,) = await stage.put(1)

        async def work(claim: Claim) -> Outcome:
            return await taking(3600 if claim.id in long else 0.1)(claim)

        stage.worker(dispatcher, work, name="w2", capacity=16)
        await asyncio.sleep(within)
        assert (await stage.one(quick)).state is State.COMPLETED
        assert (await stage.states())[State.RUNNING] == lost
        await dispatcher.stop()

    run_virtual(main(), clock=stage.clock)


def test_others_stay_out_while_the_worker_of_a_lost_task_does_not_answer() -> None:
    stage = Stage()

    async def main() -> None:
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher, taking(3600)).kill()
        await stage.put(1)
        await dispatcher.start()
        await asyncio.sleep(0.5)
        dispatcher.remove_worker("w1")
        second = stage.worker(dispatcher, taking(3600), name="w2")
        second.silence = 30.0
        await stage.put(1)
        await asyncio.sleep(60)
        assert second.most == 1
        second.silence = 0.5
        await asyncio.sleep(1)
        assert second.most == 2
        await dispatcher.stop()

    run_virtual(main(), clock=stage.clock)


def test_a_bomb_that_takes_its_time_is_found_among_long_tasks() -> None:
    stage = Stage()

    async def main() -> None:
        dispatcher = stage.dispatcher()
        bomb, *_ = await stage.put(10)
        names = hire_until_found(stage, dispatcher, bomb, fuse=20, seconds=600)
        await dispatcher.start()
        await stage.until_finished()
        await dispatcher.stop()
        assert {task.id for task in await stage.tasks() if task.state is State.FAILED} == {bomb}
        assert (await stage.one(bomb)).crashes == 3
        assert all(task.crashes == 0 for task in await stage.tasks() if task.id != bomb)
        assert len(names) < 12

    run_virtual(main(), clock=stage.clock)


def test_drain_gives_back_what_has_not_started_and_loses_nothing_that_ends() -> None:
    stage = Stage()

    async def main() -> None:
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher, taking(0.01), capacity=2)
        await stage.put(400)
        await dispatcher.start()
        await asyncio.sleep(0.5)
        left = await dispatcher.drain(timeout=5)
        assert left == []
        await dispatcher.stop()
        states = await stage.states()
        assert set(states) == {State.COMPLETED, State.PENDING}
        assert states[State.COMPLETED] == len(stage.started)
        assert all(task.attempts == 0 for task in await stage.tasks() if task.state is State.PENDING)

    run_virtual(main(), clock=stage.clock)


def test_a_stop_in_the_middle_of_a_task_gives_it_back_without_an_attempt() -> None:
    stage = Stage()

    async def main() -> None:
        dispatcher = stage.dispatcher()
        worker = stage.worker(dispatcher, taking(1000))
        (task,) = await stage.put()
        await dispatcher.start()
        await asyncio.sleep(0.1)
        assert [claim.id for claim in await dispatcher.drain(timeout=1)] == [task]
        await dispatcher.stop()
        worker.kill()
        found = await stage.one(task)
        assert (found.state, found.attempts, found.losses) == (State.PENDING, 0, 0)
        assert [one.outcome for one in await stage.engine.attempts(task)] == ["released"]

    run_virtual(main(), clock=stage.clock)


def test_claims_that_wait_too_long_in_the_buffer_go_back() -> None:
    stage = Stage()

    async def main() -> None:
        slow = False

        async def work(_: Claim) -> Outcome:
            await asyncio.sleep(1000 if slow else 0.001)
            return Completed("null")

        dispatcher = stage.dispatcher()
        worker = stage.worker(dispatcher, work, capacity=2)
        await stage.put(1000)
        await dispatcher.start()
        await stage.until(lambda: _has(stage, State.COMPLETED, 200), step=0.01)
        slow = True
        await asyncio.sleep(0.05)
        assert (await stage.states())[State.RUNNING] > 2
        await asyncio.sleep(2)
        assert (await stage.states())[State.RUNNING] == 2
        await dispatcher.stop()
        worker.kill()

    run_virtual(main(), clock=stage.clock)


def test_nothing_of_a_rated_queue_is_claimed_ahead_and_its_rate_is_used_up() -> None:
    stage = Stage()

    async def main() -> None:
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher, taking(0.01), capacity=50)
        await stage.engine.change_queue("default", QueueChange(rate=rate("10/s")))
        await stage.put(100)
        await dispatcher.start()
        began = stage.clock.now()
        await stage.until_finished()
        await dispatcher.stop()
        starts = [moment for moment, _, _ in stage.started]
        for start in starts:
            assert sum(start - SECOND < other <= start for other in starts) <= 10
        assert stage.clock.now() - began < 10 * SECOND

    run_virtual(main(), clock=stage.clock)


def test_a_cancelled_task_is_stopped_where_it_runs() -> None:
    stage = Stage()

    async def main() -> None:
        dispatcher = stage.dispatcher(ttl=span("3s"))
        stage.worker(dispatcher, taking(1000))
        (task,) = await stage.put()
        await dispatcher.start()
        await asyncio.sleep(0.1)
        assert (await stage.engine.cancel(by(id=task), reason="bored")).asked == 1
        await asyncio.sleep(1.5)
        found = await stage.one(task)
        assert (found.state, found.cancel_asked) == (State.CANCELLED, False)
        await dispatcher.stop()

    run_virtual(main(), clock=stage.clock)


def test_a_session_that_cannot_renew_is_lost_and_everything_late_is_refused() -> None:
    class Silent(MemoryEngine):
        silent = False

        async def renew(self, session: int, snapshot: str | None = None) -> Renewal:
            if self.silent:
                raise StoreUnavailable("no answer")
            return await super().renew(session, snapshot)

    clock = FakeClock()
    engine = Silent(clock=clock)
    stage = Stage(engine)
    stage.clock = clock

    async def main() -> None:
        first = stage.dispatcher(ttl=span("3s"))
        stage.worker(first, taking(5))
        (task,) = await stage.put()
        await first.start()
        await asyncio.sleep(0.1)
        engine.silent = True
        await asyncio.sleep(3.2)
        assert first.lost
        assert stage.lost == 1
        assert await reclaim(engine) == 1
        engine.silent = False
        second = stage.dispatcher()
        stage.worker(second, taking(10), name="w2")
        await second.start()
        await asyncio.sleep(3)
        assert [(claim.id, verdict.applied) for claim, verdict in stage.verdicts] == [(task, False)]
        await stage.until_finished()
        found = await stage.one(task)
        assert (found.worker, found.attempts, found.losses) == ("w2", 1, 1)
        await first.stop()
        await second.stop()

    run_virtual(main(), clock=clock)


def test_outcomes_survive_a_store_that_is_away_for_a_while() -> None:
    class Away(MemoryEngine):
        away = False

        async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
            if self.away:
                raise StoreUnavailable("no answer")
            return await super().settle(settlements)

    clock = FakeClock()
    engine = Away(clock=clock)
    stage = Stage(engine)
    stage.clock = clock

    async def main() -> None:
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher, taking(0.01))
        await stage.put(50)
        engine.away = True
        await dispatcher.start()
        await asyncio.sleep(3)
        engine.away = False
        await stage.until_finished()
        await dispatcher.stop()
        assert len(stage.started) == 50

    run_virtual(main(), clock=clock)


def test_claims_whose_answer_was_lost_go_back_and_run() -> None:
    class Mute(MemoryEngine):
        lose = 2

        async def claim(self, request: ClaimRequest) -> Claimed:
            claimed = await super().claim(request)
            if claimed.claims and self.lose:
                self.lose -= 1
                raise StoreUnavailable("the answer was lost")
            return claimed

    clock = FakeClock()
    stage = Stage(Mute(clock=clock))
    stage.clock = clock

    async def main() -> None:
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher, taking(0.5), capacity=3)
        await stage.put(10)
        await dispatcher.start()
        await stage.until_finished()
        await dispatcher.stop()
        assert len(stage.started) == 10
        assert all((task.attempts, task.losses) == (1, 0) for task in await stage.tasks())

    run_virtual(main(), clock=clock, limit="1m")


@pytest.mark.parametrize("answered", [True, False])
def test_a_claim_that_is_under_way_at_a_stop_is_given_back(answered: bool) -> None:
    """The store has made the claim, and its answer comes after the stop began, or never."""

    class Slow(MemoryEngine):
        async def claim(self, request: ClaimRequest) -> Claimed:
            claimed = await super().claim(request)
            made.set()
            await answer.wait()
            if not answered:
                raise StoreUnavailable("the answer was lost")
            return claimed

    clock = FakeClock()
    stage = Stage(Slow(clock=clock))
    stage.clock = clock
    made, answer = asyncio.Event(), asyncio.Event()

    async def main() -> None:
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher)
        await stage.put(10)
        await dispatcher.start()
        await made.wait()
        assert State.RUNNING in await stage.states()
        assert await dispatcher.drain(timeout=5) == []
        asyncio.get_running_loop().call_later(0.1, answer.set)
        await dispatcher.stop()
        assert [session.ended for session in await stage.engine.sessions()] == [True]
        assert set(await stage.states()) == {State.PENDING}
        assert stage.started == []
        assert {(task.attempts, task.losses) for task in await stage.tasks()} == {(0, 0)}

    run_virtual(main(), clock=clock)


def test_a_stop_does_not_wait_for_ever_for_a_claim() -> None:
    class Hung(MemoryEngine):
        async def claim(self, request: ClaimRequest) -> Claimed:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

    clock = FakeClock()
    stage = Stage(Hung(clock=clock))
    stage.clock = clock
    asked = asyncio.Event()

    async def main() -> None:
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher)
        await dispatcher.start()
        await asked.wait()
        await dispatcher.stop(flush_seconds=5)

    run_virtual(main(), clock=clock, limit="6s")


def test_a_duty_that_breaks_ends_the_session_instead_of_leaving_it_deaf() -> None:
    class Broken(MemoryEngine):
        async def claim(self, request: ClaimRequest) -> Claimed:
            raise AttributeError("a bug")

    clock = FakeClock()
    stage = Stage(Broken(clock=clock))
    stage.clock = clock

    async def main() -> None:
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher)
        await dispatcher.start()
        await asyncio.sleep(0.1)
        assert dispatcher.lost
        assert isinstance(dispatcher.fault, AttributeError)
        assert stage.lost == 1
        await dispatcher.stop()

    run_virtual(main(), clock=clock)


def test_an_outcome_that_cannot_be_stored_fails_its_task_and_no_other() -> None:
    class Picky(MemoryEngine):
        async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
            for settlement in settlements:
                if settlement.transition.result == '"bad"':
                    raise ValueError("cannot store this")
            return await super().settle(settlements)

    clock = FakeClock()
    stage = Stage(Picky(clock=clock))
    stage.clock = clock

    async def main() -> None:
        async def work(claim: Claim) -> Outcome:
            await asyncio.sleep(0.01)
            return Completed('"bad"' if claim.id == ids[3] else '"good"')

        dispatcher = stage.dispatcher()
        stage.worker(dispatcher, work, capacity=10)
        ids = await stage.put(10)
        await dispatcher.start()
        await stage.until_finished()
        await dispatcher.stop()
        assert await stage.states() == {State.COMPLETED: 9, State.FAILED: 1}
        bad = await stage.one(ids[3])
        assert bad.error is not None
        assert bad.error.category == "store"

    run_virtual(main(), clock=clock)


def test_an_outcome_of_which_not_even_the_error_can_be_stored_fails_its_task() -> None:
    """It stayed running as long as the session lived."""

    class Picky(MemoryEngine):
        async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
            if any(one.transition.error is not None or one.transition.result is not None for one in settlements):
                raise ValueError("cannot store this")
            return await super().settle(settlements)

    clock = FakeClock()
    stage = Stage(Picky(clock=clock))
    stage.clock = clock

    async def main() -> None:
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher)
        (task,) = await stage.put()
        await dispatcher.start()
        await stage.until_finished()
        await dispatcher.stop()
        failed = await stage.one(task)
        assert (failed.state, failed.reason) == (State.FAILED, "its outcome could not be stored")

    run_virtual(main(), clock=clock)


def test_a_task_whose_end_was_refused_in_every_form_goes_back_within_a_minute() -> None:
    class Stubborn(MemoryEngine):
        refuses = 3

        async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
            if self.refuses:
                self.refuses -= 1
                raise ValueError("cannot store this")
            return await super().settle(settlements)

    clock = FakeClock()
    stage = Stage(Stubborn(clock=clock))
    stage.clock = clock

    async def main() -> None:
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher)
        await stage.put()
        await dispatcher.start()
        await asyncio.sleep(50)
        assert await stage.states() == {State.RUNNING: 1}
        await asyncio.sleep(15)
        assert await stage.states() == {State.COMPLETED: 1}
        await dispatcher.stop()

    run_virtual(main(), clock=clock)


def test_claims_that_an_answer_left_out_go_back_within_a_minute() -> None:
    """Without an error there was no look: the tasks were running, and no worker had them."""

    class Forgetful(MemoryEngine):
        finds = 0

        async def claim(self, request: ClaimRequest) -> Claimed:
            claimed = await super().claim(request)
            left_out, self.left_out = claimed.claims[: self.left_out], 0
            return msgspec.structs.replace(claimed, claims=claimed.claims[len(left_out) :])

        left_out = 2

        async def find(self, *arguments: Any, **options: Any) -> Page:
            self.finds += 1
            return await super().find(*arguments, **options)

    clock = FakeClock()
    engine = Forgetful(clock=clock)
    stage = Stage(engine)
    stage.clock = clock

    async def main() -> None:
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher, taking(0.5), capacity=3)
        await stage.put(10)
        await dispatcher.start()
        await asyncio.sleep(59)
        assert await stage.states() == {State.RUNNING: 2, State.COMPLETED: 8}
        looks = engine.finds
        await asyncio.sleep(600)
        assert engine.finds - looks <= 12
        assert await stage.states() == {State.COMPLETED: 10}
        await dispatcher.stop()

    run_virtual(main(), clock=clock)


def test_progress_reaches_the_store_and_never_overtakes_the_end() -> None:
    stage = Stage()

    async def main() -> None:
        async def work(claim: Claim) -> Outcome:
            for percent in (10, 20, 90):
                dispatcher.progress(claim, percent, f"at {percent}")
            await asyncio.sleep(1)
            dispatcher.progress(claim, 99, "nearly")
            return Completed("null")

        dispatcher = stage.dispatcher()
        stage.worker(dispatcher, work)
        (task,) = await stage.put()
        await dispatcher.start()
        await asyncio.sleep(0.5)
        assert (await stage.one(task)).note == "at 90"
        await stage.until_finished()
        assert (await stage.one(task)).state is State.COMPLETED
        await dispatcher.stop()

    run_virtual(main(), clock=stage.clock)


async def _has(stage: Stage, state: State, count: int) -> bool:
    return (await stage.states()).get(state, 0) >= count
