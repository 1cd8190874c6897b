"""Unique keys: one task per key, for as long as the key is taken."""

import pytest

from pitboss.model.filter import by
from pitboss.model.outcome import Released
from pitboss.model.states import State
from pitboss.model.task import Placed, Unique
from pitboss.testing.conformance.bench import Bench
from pitboss.testing.conformance.outcomes import FINAL, WAITING_AGAIN, transition_for

HOUR = 3_600_000_000


class Uniqueness:
    async def test_a_taken_key_meets_its_holder(self, bench: Bench) -> None:
        first = await bench.add(unique=Unique("k"), queue="a")
        second = bench.new(unique=Unique("k"), queue="b")
        assert await bench.put(second) == [Placed(first.id, False, State.PENDING)]
        assert await bench.store.get([second.id]) == [None]
        assert [queue.name for queue in await bench.store.queues()] == ["a"]

    async def test_two_tasks_of_one_call_meet(self, bench: Bench) -> None:
        first, second, other = bench.new(unique=Unique("k")), bench.new(unique=Unique("k")), bench.new()
        assert await bench.put(first, other, second) == [
            Placed(first.id, True, State.PENDING),
            Placed(other.id, True, State.PENDING),
            Placed(first.id, False, State.PENDING),
        ]

    async def test_the_first_of_a_call_wins_whatever_its_age(self, bench: Bench) -> None:
        older, younger = bench.new(unique=Unique("k")), bench.new(unique=Unique("k"))
        placed = await bench.put(younger, older)
        assert [(one.id, one.created) for one in placed] == [(younger.id, True), (younger.id, False)]

    @pytest.mark.parametrize("options", [{"delay": 5_000}, {"handler": "stranger"}, {}])
    async def test_a_waiting_task_has_its_key(self, bench: Bench, options: dict[str, object]) -> None:
        first = await bench.add(unique=Unique("k"), **options)
        assert await bench.put(bench.new(unique=Unique("k"))) == [Placed(first.id, False, first.state, first.reason)]

    async def test_a_running_task_has_its_key(self, bench: Bench) -> None:
        claim = await bench.started(unique=Unique("k"))
        assert await bench.put(bench.new(unique=Unique("k"))) == [Placed(claim.id, False, State.RUNNING)]

    @pytest.mark.parametrize("name", WAITING_AGAIN)
    async def test_a_task_that_goes_back_to_waiting_keeps_its_key(self, bench: Bench, name: str) -> None:
        claim = await bench.started(unique=Unique("k"))
        await bench.write(claim, transition_for(name, claim, bench.now))
        assert not (await bench.put(bench.new(unique=Unique("k"))))[0].created

    @pytest.mark.parametrize("name", FINAL)
    async def test_a_finished_task_frees_its_key(self, bench: Bench, name: str) -> None:
        claim = await bench.started(unique=Unique("k"))
        await bench.write(claim, transition_for(name, claim, bench.now))
        assert (await bench.task(claim.id)).unique_key == "k"
        assert (await bench.add(unique=Unique("k"))).id != claim.id

    async def test_a_cancelled_and_an_expired_task_free_their_keys(self, bench: Bench) -> None:
        task = await bench.add(unique=Unique("k"))
        await bench.cancel(task.id)
        assert (await bench.add(unique=Unique("k"), expires_in=1_000)).unique_key == "k"
        bench.clock.advance(1)
        await bench.claim()
        assert (await bench.put(bench.new(unique=Unique("k"))))[0].created

    async def test_a_lost_task_keeps_its_key_and_a_lost_cancelled_one_frees_it(self, bench: Bench) -> None:
        await bench.put(bench.new(unique=Unique("kept")), bench.new(unique=Unique("freed")))
        kept, freed = await bench.claim(2)
        await bench.cancel(freed.id)
        await bench.end(bench.me)
        await bench.reclaim()
        placed = await bench.put(bench.new(unique=Unique("kept")), bench.new(unique=Unique("freed")))
        assert [(one.created, one.id == kept.id) for one in placed] == [(False, True), (True, False)]

    async def test_keys_are_the_store_s_and_not_the_queue_s_or_handler_s(self, bench: Bench) -> None:
        await bench.register("other")
        first = await bench.add(unique=Unique("k"))
        placed = await bench.put(bench.new(unique=Unique("k"), queue="b", handler="other"))
        assert placed == [Placed(first.id, False, State.PENDING)]

    @pytest.mark.parametrize("key", ["", " ", "K", "k ", "%", "ключ", "k'\"\\", "k" * 500])
    async def test_keys_are_compared_exactly(self, bench: Bench, key: str) -> None:
        await bench.add(unique=Unique("k"))
        assert (await bench.add(unique=Unique(key))).unique_key == key
        assert not (await bench.put(bench.new(unique=Unique(key))))[0].created

    async def test_a_period_holds_the_key_past_the_end_of_the_task(self, bench: Bench) -> None:
        claim = await bench.started(unique=Unique("k", HOUR))
        put_at = bench.now
        await bench.complete(claim)
        bench.clock.advance_to(put_at + HOUR - 1)
        assert await bench.put(bench.new(unique=Unique("k", HOUR))) == [Placed(claim.id, False, State.COMPLETED)]
        bench.clock.advance_to(put_at + HOUR)
        assert (await bench.add(unique=Unique("k", HOUR))).unique_key == "k"

    async def test_a_period_that_is_over_frees_the_key_of_an_unfinished_task(self, bench: Bench) -> None:
        first = await bench.add(unique=Unique("k", 1_000))
        bench.clock.advance("1ms")
        second = await bench.add(unique=Unique("k", 1_000))
        assert await bench.states(first, second) == [State.PENDING, State.PENDING]
        third = bench.new(unique=Unique("k", 1_000))
        assert await bench.put(third) == [Placed(second.id, False, State.PENDING)]

    async def test_meeting_does_not_prolong_a_period(self, bench: Bench) -> None:
        await bench.add(unique=Unique("k", 1_000))
        bench.clock.advance("999us")
        assert not (await bench.put(bench.new(unique=Unique("k", 1_000))))[0].created
        bench.clock.advance("1us")
        assert (await bench.put(bench.new(unique=Unique("k", 1_000))))[0].created

    async def test_the_end_of_the_old_holder_does_not_free_the_key_of_the_new_one(self, bench: Bench) -> None:
        old = await bench.started(unique=Unique("k", 1_000))
        bench.clock.advance("1ms")
        new = await bench.add(unique=Unique("k"))
        await bench.complete(old)
        assert await bench.put(bench.new(unique=Unique("k"))) == [Placed(new.id, False, State.PENDING)]

    async def test_a_cancelled_task_holds_its_period(self, bench: Bench) -> None:
        task = await bench.add(unique=Unique("k", HOUR))
        await bench.cancel(task.id)
        assert await bench.put(bench.new(unique=Unique("k"))) == [Placed(task.id, False, State.CANCELLED, "cancelled")]

    async def test_keys_with_and_without_period_meet_each_other(self, bench: Bench) -> None:
        first = await bench.add(unique=Unique("k"))
        assert not (await bench.put(bench.new(unique=Unique("k", HOUR))))[0].created
        await bench.complete(await bench.take())
        second = await bench.add(unique=Unique("k", HOUR))
        assert (await bench.put(bench.new(unique=Unique("k"))))[0].id == second.id != first.id

    async def test_a_retried_task_takes_its_key_again(self, bench: Bench) -> None:
        claim = await bench.started(unique=Unique("k"))
        await bench.write(claim, transition_for("failed", claim, bench.now))
        assert (await bench.retry(claim.id)).changed == 1
        assert await bench.put(bench.new(unique=Unique("k"))) == [Placed(claim.id, False, State.PENDING)]

    async def test_a_retry_whose_key_another_has_is_refused_by_id(self, bench: Bench) -> None:
        claim = await bench.started(unique=Unique("k"))
        await bench.write(claim, transition_for("failed", claim, bench.now))
        failed = await bench.task(claim.id)
        await bench.add(unique=Unique("k"))
        free = await bench.started(queue="else")
        await bench.write(free, transition_for("failed", free, bench.now))
        changed = await bench.retry(by(state="failed"))
        assert (changed.changed, changed.refused, changed.more) == (1, (failed.id,), False)
        await bench.became(failed)

    async def test_of_two_failed_tasks_with_one_key_the_older_is_retried(self, bench: Bench) -> None:
        claims = []
        for _ in range(2):
            claim = await bench.started(unique=Unique("k"))
            await bench.write(claim, transition_for("failed", claim, bench.now))
            claims.append(claim)
        changed = await bench.retry(by(state="failed"))
        assert (changed.changed, changed.refused) == (1, (claims[1].id,))
        assert await bench.states(*claims) == [State.PENDING, State.FAILED]

    async def test_a_retry_within_its_own_period_has_its_key(self, bench: Bench) -> None:
        task = await bench.add(unique=Unique("k", HOUR))
        await bench.cancel(task.id)
        assert (await bench.retry(task.id)).changed == 1
        assert await bench.put(bench.new(unique=Unique("k"))) == [Placed(task.id, False, State.PENDING)]

    async def test_prune_leaves_a_task_whose_period_runs(self, bench: Bench) -> None:
        task = await bench.add(unique=Unique("k", HOUR))
        plain = await bench.add(unique=Unique("p"))
        await bench.cancel(task.id)
        await bench.cancel(plain.id)
        assert (await bench.prune()).changed == 1
        assert await bench.store.get([task.id, plain.id]) == [await bench.task(task.id), None]
        bench.clock.advance_to(task.created_at + HOUR)
        assert (await bench.prune()).changed == 1
        assert (await bench.add(unique=Unique("k"))).unique_key == "k"

    async def test_a_release_and_a_new_claim_do_not_free_the_key(self, bench: Bench) -> None:
        claim = await bench.started(unique=Unique("k"))
        await bench.report(claim, Released())
        again = await bench.take()
        assert await bench.put(bench.new(unique=Unique("k"))) == [Placed(again.id, False, State.RUNNING)]
