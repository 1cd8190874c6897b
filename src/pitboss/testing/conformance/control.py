"""Control: what operators do to tasks, one or many."""

import pytest

from pitboss.model.filter import EVERYTHING, by, parsed
from pitboss.model.outcome import Completed, Crashed, Failed, Released, Snooze
from pitboss.model.queue import Changed
from pitboss.model.settlement import APPLIED
from pitboss.model.states import State
from pitboss.testing.conformance.bench import BROKEN, Bench
from pitboss.testing.conformance.outcomes import FINAL, WAITING_AGAIN, transition_for


class Cancelling:
    @pytest.mark.parametrize("options", [{}, {"delay": 5_000}, {"handler": "stranger"}])
    async def test_a_waiting_task_is_cancelled(self, bench: Bench, options: dict[str, object]) -> None:
        task = await bench.add(**options)
        assert await bench.cancel(task.id, reason="not today") == Changed(changed=1)
        await bench.became(task, state=State.CANCELLED, reason="not today", finished_at=bench.now)
        assert await bench.history(task) == []
        assert await bench.claim() == []

    async def test_without_a_reason_the_reason_is_that_it_was_cancelled(self, bench: Bench) -> None:
        task = await bench.add()
        await bench.cancel(task.id)
        assert (await bench.task(task.id)).reason == "cancelled"

    async def test_a_running_task_is_asked(self, bench: Bench) -> None:
        claim = await bench.started()
        before = await bench.task(claim.id)
        assert await bench.cancel(claim.id, reason="stop") == Changed(asked=1)
        await bench.became(before, cancel_asked=True, reason="stop")
        assert await bench.cancel(claim.id, reason="again") == Changed()

    @pytest.mark.parametrize("name", WAITING_AGAIN)
    async def test_a_task_asked_to_cancel_does_not_wait_again(self, bench: Bench, name: str) -> None:
        claim = await bench.started()
        await bench.cancel(claim.id, reason="stop")
        before = await bench.task(claim.id)
        transition = transition_for(name, claim, bench.now)
        assert await bench.write(claim, transition) == APPLIED
        await bench.became(
            before,
            state=State.CANCELLED,
            outcome=transition.outcome,
            error=transition.error,
            attempts=1,
            losses=int(transition.lost),
            crashes=int(transition.crashed),
            rotations=int(transition.rotated),
            finished_at=bench.now,
            cancel_asked=False,
        )
        (run,) = await bench.history(claim)
        assert (run.attempt, run.outcome, run.error) == (1, transition.outcome, transition.error)
        assert await bench.claim() == []
        assert await bench.write(claim, transition) == APPLIED

    @pytest.mark.parametrize("name", FINAL)
    async def test_a_task_asked_to_cancel_may_still_finish(self, bench: Bench, name: str) -> None:
        claim = await bench.started()
        await bench.cancel(claim.id, reason="stop")
        transition = transition_for(name, claim, bench.now)
        await bench.write(claim, transition)
        task = await bench.task(claim.id)
        assert (task.state, task.reason, task.cancel_asked) == (transition.state, transition.reason, False)

    async def test_finished_tasks_are_left_alone(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.complete(claim)
        assert await bench.cancel(EVERYTHING) == Changed()

    async def test_many_by_filter_and_only_those(self, bench: Bench) -> None:
        tasks = [await bench.add(queue="ab"[number % 2]) for number in range(6)]
        claim = await bench.take("a")
        assert await bench.cancel(by(queue="a")) == Changed(changed=2, asked=1)
        assert await bench.states(*tasks[1::2]) == [State.PENDING] * 3
        assert (await bench.renew(bench.me)).cancels == ((claim.id, claim.token),)

    async def test_no_more_than_the_limit_oldest_first(self, bench: Bench) -> None:
        tasks = [await bench.add() for _ in range(3)]
        assert await bench.cancel(EVERYTHING, limit=2) == Changed(changed=2, more=True)
        assert await bench.states(*tasks) == [State.CANCELLED, State.CANCELLED, State.PENDING]
        assert await bench.cancel(EVERYTHING, limit=2) == Changed(changed=1)

    async def test_a_limit_that_is_just_enough_wants_no_repeat(self, bench: Bench) -> None:
        await bench.put(bench.new(), bench.new())
        assert await bench.cancel(EVERYTHING, limit=2) == Changed(changed=2)

    async def test_a_place_becomes_free(self, bench: Bench) -> None:
        await bench.change("default", capacity=1)
        task = await bench.add()
        await bench.cancel(task.id)
        assert (await bench.add()).state is State.PENDING


class Retrying:
    async def test_a_failed_task_is_as_new(self, bench: Bench) -> None:
        claim = await bench.started(max_attempts=1, expires_in=9_000_000)
        await bench.progress(claim, 10, "began")
        await bench.report(claim, Failed(BROKEN), worker="w")
        before = await bench.task(claim.id)
        assert await bench.retry(claim.id) == Changed(changed=1)
        await bench.became(
            before,
            state=State.PENDING,
            reason=None,
            run_at=bench.now,
            expires_at=None,
            started_at=None,
            finished_at=None,
            attempts=0,
        )
        (run,) = await bench.history(claim)
        assert (run.claim, run.attempt, run.outcome, run.error, run.worker) == (1, 1, "failed", BROKEN, "w")
        again = await bench.take()
        assert (again.attempt, again.token.claim, again.expires_at) == (1, 2, None)
        await bench.complete(again)
        assert [(run.claim, run.outcome) for run in await bench.history(claim)] == [(1, "failed"), (2, "completed")]

    async def test_a_retried_task_has_waited_since_then(self, bench: Bench) -> None:
        claim = await bench.started(max_attempts=1)
        await bench.report(claim, Failed(BROKEN))
        bench.clock.advance(3600)
        await bench.retry(claim.id)
        bench.clock.advance(5)
        found = await bench.store.find(parsed("wait:>4s wait:<6s"))
        assert [task.id for task in found.tasks] == [claim.id]

    async def test_counters_start_from_zero(self, bench: Bench) -> None:
        await bench.add()
        for _ in range(3):
            await bench.report(await bench.take(), Crashed(alone=True))
        (task,) = await bench.every_task()
        assert (task.state, task.attempts, task.losses, task.crashes) == (State.FAILED, 1, 3, 3)
        await bench.retry(task.id)
        claim = await bench.take()
        assert (claim.attempt, claim.losses, claim.crashes, claim.alone) == (1, 0, 0, False)

    async def test_attempts_are_kept_if_told_so(self, bench: Bench) -> None:
        await bench.add(max_attempts=2)
        await bench.report(await bench.take(), Crashed(alone=False))
        claim = await bench.take()
        await bench.report(claim, Failed(BROKEN))
        bench.clock.advance(60)
        claim = await bench.take()
        await bench.report(claim, Failed(BROKEN))
        assert await bench.retry(claim.id, keep_attempts=True) == Changed(changed=1)
        again = await bench.take()
        assert (again.attempt, again.losses) == (3, 1)
        await bench.report(again, Failed(BROKEN))
        assert (await bench.task(again.id)).reason == "attempts used up"

    async def test_a_cancelled_task_runs_after_all(self, bench: Bench) -> None:
        task = await bench.add(delay=60_000_000)
        await bench.cancel(task.id)
        assert await bench.retry(task.id) == Changed(changed=1)
        await bench.became(task, state=State.PENDING, run_at=bench.now)
        assert (await bench.take()).id == task.id

    async def test_an_expired_task_runs_without_its_expiry(self, bench: Bench) -> None:
        task = await bench.add(expires_in=1)
        bench.clock.advance(1)
        assert await bench.claim() == []
        await bench.retry(task.id)
        await bench.became(task, run_at=bench.now, expires_at=None)
        assert (await bench.take()).id == task.id

    async def test_a_task_of_an_unknown_handler_is_held(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.report(claim, Failed(BROKEN), worker="w")
        await bench.cancel(claim.id)
        await bench.store.forget(["job"])
        assert await bench.retry(claim.id) == Changed(changed=1)
        task = await bench.task(claim.id)
        assert (task.state, task.reason) == (State.HELD, "handler")
        await bench.register("job")
        assert (await bench.take()).id == claim.id

    async def test_a_failed_task_of_an_unknown_handler_is_held_too(self, bench: Bench) -> None:
        claim = await bench.started(max_attempts=1)
        await bench.report(claim, Failed(BROKEN))
        await bench.store.forget(["job"])
        await bench.retry(claim.id)
        assert (await bench.task(claim.id)).state is State.HELD

    async def test_only_failed_and_cancelled_tasks_are_retried(self, bench: Bench) -> None:
        await bench.put(bench.new(), bench.new(), bench.new(delay=9), bench.new(handler="stranger"))
        done, _ = await bench.claim(2)
        await bench.report(done, Completed('"r"'))
        before = await bench.every_task()
        assert await bench.retry(EVERYTHING) == Changed()
        assert await bench.every_task() == before

    async def test_retries_may_overfill_a_queue(self, bench: Bench) -> None:
        await bench.change("default", capacity=1)
        task = await bench.add()
        await bench.cancel(task.id)
        await bench.add()
        assert await bench.retry(task.id) == Changed(changed=1)
        assert (await bench.queue()).counts == {State.PENDING: 2}

    async def test_no_more_retries_than_the_limit_oldest_first(self, bench: Bench) -> None:
        tasks = [await bench.add() for _ in range(3)]
        await bench.cancel(EVERYTHING)
        assert await bench.retry(parsed("state:cancelled"), limit=2) == Changed(changed=2, more=True)
        assert await bench.states(*tasks) == [State.PENDING, State.PENDING, State.CANCELLED]

    async def test_a_run_that_ended_in_cancellation_stays_in_the_history(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.cancel(claim.id)
        await bench.report(claim, Released(started=True))
        await bench.retry(claim.id)
        assert [(run.claim, run.outcome) for run in await bench.history(claim)] == [(1, "released")]

    async def test_a_task_cancelled_while_it_waited_tells_each_run_once(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.report(claim, Snooze(5_000_000))
        await bench.cancel(claim.id)
        assert [run.outcome for run in await bench.history(claim)] == ["snoozed"]
        await bench.retry(claim.id)
        assert [run.outcome for run in await bench.history(claim)] == ["snoozed"]


class ChangingTasks:
    async def test_a_task_with_a_lower_number_runs_first(self, bench: Bench) -> None:
        first, second, third = [await bench.add() for _ in range(3)]
        assert await bench.change_tasks(third.id, priority=-5) == Changed(changed=1)
        assert await bench.change_tasks(first.id, priority=5) == Changed(changed=1)
        await bench.became(third, priority=-5)
        assert [claim.id for claim in await bench.claim(3)] == [third.id, second.id, first.id]

    @pytest.mark.parametrize("options", [{"delay": 5_000_000}, {"handler": "stranger"}, {"queue": "other"}])
    async def test_every_waiting_task_can_be_changed(self, bench: Bench, options: dict[str, object]) -> None:
        task = await bench.add(**options)
        assert await bench.change_tasks(task.id, priority=7, tag=("a", "b")) == Changed(changed=1)
        await bench.became(task, priority=7, tags=("a", "b"))

    async def test_tags_are_added_behind_the_others_and_removed(self, bench: Bench) -> None:
        task, plain = await bench.add(tags=("x", "y", "z")), await bench.add()
        assert await bench.change_tasks(EVERYTHING, tag=("z", "a"), untag=("y", "q")) == Changed(changed=2)
        await bench.became(task, tags=("x", "z", "a"))
        await bench.became(plain, tags=("z", "a"))
        assert await bench.change_tasks(EVERYTHING, untag=("z", "a", "x")) == Changed(changed=2)
        assert [one.tags for one in await bench.every_task()] == [(), ()]

    async def test_a_change_is_made_once(self, bench: Bench) -> None:
        task = await bench.add(tags=("x",))
        for expected in (1, 0):
            changed = await bench.change_tasks(task.id, priority=3, tag=("y",), untag=("q",))
            assert changed == Changed(changed=expected)

    async def test_running_and_finished_tasks_stay_as_they_are(self, bench: Bench) -> None:
        running, done = await bench.started(), await bench.started()
        await bench.report(done, Completed())
        before = [await bench.task(one.id) for one in (running, done)]
        assert await bench.change_tasks(EVERYTHING, priority=3, tag=("y",)) == Changed()
        assert [await bench.task(one.id) for one in (running, done)] == before

    async def test_the_oldest_are_changed_first_a_few_at_a_time(self, bench: Bench) -> None:
        tasks = [await bench.add(queue=queue) for queue in "abc"]
        assert await bench.change_tasks(EVERYTHING, priority=3, limit=2) == Changed(changed=2, more=True)
        assert [one.priority for one in await bench.every_task()] == [3, 3, 0]
        assert await bench.change_tasks(EVERYTHING, priority=3, limit=2) == Changed(changed=1)
        assert [one.id for one in await bench.every_task()] == [one.id for one in tasks]

    async def test_only_matching_tasks_are_changed(self, bench: Bench) -> None:
        await bench.add(queue="a", tags=("eu",))
        await bench.add(queue="b", tags=("eu",))
        assert await bench.change_tasks(parsed("queue:a tag:eu"), priority=9) == Changed(changed=1)
        assert [one.priority for one in await bench.every_task()] == [9, 0]


class Pruning:
    async def test_finished_tasks_go_with_their_history(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.complete(claim)
        waiting = await bench.add()
        assert await bench.prune() == Changed(changed=1)
        assert await bench.store.get([claim.id]) == [None]
        assert await bench.history(claim) == []
        assert await bench.every_task() == [waiting]

    async def test_unfinished_tasks_stay(self, bench: Bench) -> None:
        await bench.put(bench.new(), bench.new(), bench.new(delay=9), bench.new(handler="stranger"))
        await bench.take()
        assert await bench.prune() == Changed()
        assert (await bench.store.count(EVERYTHING)).number == 4

    async def test_only_what_finished_before_the_moment(self, bench: Bench) -> None:
        tasks = []
        for _ in range(3):
            tasks.append(await bench.add())
            await bench.cancel(EVERYTHING)
            bench.clock.advance(1)
        edge = (await bench.task(tasks[1].id)).finished_at
        assert await bench.prune(before=edge) == Changed(changed=1)
        assert await bench.store.get([tasks[0].id]) == [None]
        assert edge is not None
        assert await bench.prune(before=edge + 1) == Changed(changed=1)
        assert [task.id for task in await bench.every_task()] == [tasks[2].id]

    async def test_only_what_matches(self, bench: Bench) -> None:
        await bench.put(bench.new(tags=("keep",)), bench.new())
        await bench.cancel(EVERYTHING)
        assert await bench.prune(parsed("-tag:keep")) == Changed(changed=1)
        (left,) = await bench.every_task()
        assert left.tags == ("keep",)

    async def test_no_more_pruned_than_the_limit(self, bench: Bench) -> None:
        for _ in range(3):
            await bench.add()
        await bench.cancel(EVERYTHING)
        assert await bench.prune(limit=2) == Changed(changed=2, more=True)
        assert len(await bench.every_task()) == 1
        assert await bench.prune(limit=2) == Changed(changed=1)

    async def test_a_pruned_id_may_be_put_again(self, bench: Bench) -> None:
        new = bench.new()
        await bench.put(new)
        await bench.complete(await bench.take())
        await bench.prune()
        assert (await bench.put(new))[0].created
        assert (await bench.take()).token.claim == 1
        assert await bench.store.attempts(new.id) == []

    async def test_children_stay_when_their_parent_goes(self, bench: Bench) -> None:
        claim = await bench.started()
        child = bench.new(parent=claim.id)
        await bench.complete(claim, None, child)
        await bench.prune()
        assert (await bench.task(child.id)).parent == claim.id
