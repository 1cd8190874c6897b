"""Alerts: the leader's notes with the tasks that go with them, and the silences of operators."""

import pytest

from pitboss.model.alert import Silence
from pitboss.model.alert_look import AlertBoard
from pitboss.model.duration import SECOND
from pitboss.model.errors import NotLeader
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.testing.conformance.bench import Bench


class AlertNotesKeeping:
    async def test_a_new_store_has_no_notes(self, bench: Bench) -> None:
        assert await bench.store.alert_board() == AlertBoard()

    async def test_notes_are_replaced_and_their_version_grows(self, bench: Bench) -> None:
        term = await _term(bench)
        assert await bench.store.note_alerts('{"a":1}', [], version=0, term=term)
        assert await bench.store.alert_board() == AlertBoard(notes='{"a":1}', version=1)
        assert await bench.store.note_alerts('{"a":2}', [], version=1, term=term)
        assert await (await bench.open_engine()).alert_board() == AlertBoard(notes='{"a":2}', version=2)

    async def test_tasks_are_put_with_the_notes(self, bench: Bench) -> None:
        term = await _term(bench)
        new = [bench.new(), bench.new(queue="other")]
        assert await bench.store.note_alerts("{}", new, version=0, term=term)
        assert {task.id for task in await bench.every_task()} == {task.id for task in new}

    async def test_they_may_overfill_a_queue_and_meet_a_task_that_exists(self, bench: Bench) -> None:
        term = await _term(bench)
        await bench.store.change_queue("default", QueueChange(capacity=1))
        known = await bench.add()
        again = bench.new()
        assert await bench.store.note_alerts("{}", [again, again], version=0, term=term)
        assert {task.id for task in await bench.every_task()} == {known.id, again.id}

    @pytest.mark.parametrize(("before", "version"), [(0, 1), (1, 0), (2, 1), (2, 3)])
    async def test_another_version_writes_nothing(self, bench: Bench, before: int, version: int) -> None:
        term = await _term(bench)
        for number in range(before):
            await bench.store.note_alerts("{}", [], version=number, term=term)
        assert not await bench.store.note_alerts('{"lost":1}', [bench.new()], version=version, term=term)
        assert (await bench.store.alert_board()).version == before
        assert await bench.every_task() == []

    async def test_only_the_leader_writes(self, bench: Bench) -> None:
        term = await _term(bench)
        with pytest.raises(NotLeader):
            await bench.store.note_alerts("{}", [bench.new()], version=0, term=term + 1)
        await bench.store.resign(bench.me.number)
        with pytest.raises(NotLeader):
            await bench.store.note_alerts("{}", [bench.new()], version=0, term=term)
        assert await bench.store.alert_board() == AlertBoard()
        assert await bench.every_task() == []

    async def test_a_task_for_a_registered_handler_is_ready(self, bench: Bench) -> None:
        await bench.store.register([HandlerInfo(name="pitboss.alerts.ops", queue="pitboss.alerts", remote=True)])
        new = bench.new(handler="pitboss.alerts.ops", queue="pitboss.alerts")
        await bench.store.note_alerts("{}", [new], version=0, term=await _term(bench))
        (task,) = await bench.every_task()
        assert task.state.value == "pending"


class Silencing:
    async def test_a_silence_lasts_until_its_end(self, bench: Bench) -> None:
        silence = await bench.store.silence_alert("disk", 60 * SECOND, by="ann", reason="new disk comes")
        expected = Silence(rule="disk", until=bench.now + 60 * SECOND, at=bench.now, by="ann", reason="new disk comes")
        assert silence == expected
        bench.clock.advance(59)
        assert (await bench.store.alert_board()).silences == (expected,)
        bench.clock.advance(1)
        assert (await bench.store.alert_board()).silences == ()

    async def test_a_new_silence_replaces_the_old_one(self, bench: Bench) -> None:
        await bench.store.silence_alert("disk", 3600 * SECOND, by="ann")
        other = await bench.store.silence_alert("disk", SECOND, by="bob")
        assert (await bench.store.alert_board()).silences == (other,)

    async def test_ending_a_silence_tells_which(self, bench: Bench) -> None:
        silence = await bench.store.silence_alert("disk", SECOND)
        kept = await bench.store.silence_alert("memory_usage", SECOND)
        assert await bench.store.silence_alert("disk", None) == silence
        assert await bench.store.silence_alert("disk", None) is None
        assert (await bench.store.alert_board()).silences == (kept,)

    async def test_a_silence_that_is_over_cannot_be_ended(self, bench: Bench) -> None:
        await bench.store.silence_alert("disk", SECOND)
        bench.clock.advance(1)
        assert await bench.store.silence_alert("disk", None) is None

    async def test_silences_are_told_by_rule_and_need_no_leader(self, bench: Bench) -> None:
        for rule in ("b", "a", "c"):
            await bench.store.silence_alert(rule, SECOND)
        assert [one.rule for one in (await bench.store.alert_board()).silences] == ["a", "b", "c"]


async def _term(bench: Bench) -> int:
    return (await bench.store.campaign(bench.me.number)).term


__all__ = ["AlertNotesKeeping", "Silencing"]
