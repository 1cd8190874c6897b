"""Events: the event, and a task for each subscriber, are one act."""

from typing import Any

import pytest

from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.errors import NotLeader
from pitboss.model.event import NewEvent, Published, Subscription
from pitboss.model.meta import EventMark, read_meta
from pitboss.model.outcome import Failed
from pitboss.model.states import State
from pitboss.testing.conformance.bench import BROKEN, Bench


class Publishing:
    async def test_an_event_becomes_a_task_for_each_subscriber(self, bench: Bench) -> None:
        await _subscribe(bench, _wants("a", "user.signup", queue="high", priority=-5), _wants("b", "user.*"))
        event = NewEvent(id=bench.ids(), name="user.signup", data='{"user_id":7}', by="web")
        assert await _publish(bench, event) == [Published(event.id, True, ("a", "b"))]
        (stored,) = await bench.store.events()
        assert (stored.name, stored.data, stored.by, stored.handlers) == (
            "user.signup",
            '{"user_id":7}',
            "web",
            ("a", "b"),
        )
        assert stored.published_at == bench.now
        first, second = await bench.store.get(stored.task_ids())
        assert first is not None
        assert second is not None
        assert (first.handler, first.queue, first.priority) == ("a", "high", -5)
        assert first.params == '{"event_data":{"user_id":7}}'
        assert read_meta(first.meta).event == EventMark(event.id, "user.signup")
        assert (second.handler, second.queue, second.state) == ("b", "default", State.PENDING)

    async def test_an_event_that_nobody_wants_is_kept(self, bench: Bench) -> None:
        event = NewEvent(id=bench.ids(), name="lonely")
        assert await _publish(bench, event) == [Published(event.id, True, ())]
        assert [one.id for one in await bench.store.events()] == [event.id]
        assert await bench.every_task() == []

    @pytest.mark.parametrize(
        ("pattern", "fits"),
        [
            ("user.signup", ["user.signup"]),
            ("user.*", ["user.signup", "user.left"]),
            ("*.signup", ["user.signup"]),
            ("user.**", ["user.signup", "user.left", "user.card.added"]),
            ("*", ["user"]),
            ("**", ["user", "user.signup", "user.left", "user.card.added", "users.x"]),
            ("user.*.added", ["user.card.added"]),
        ],
    )
    async def test_wildcards(self, bench: Bench, pattern: str, fits: list[str]) -> None:
        await _subscribe(bench, _wants("a", pattern))
        names = ["user", "user.signup", "user.left", "user.card.added", "users.x"]
        answers = await _publish(bench, *(NewEvent(id=bench.ids(), name=name) for name in names))
        assert [name for name, one in zip(names, answers, strict=True) if one.handlers] == fits

    async def test_a_handler_that_two_patterns_fit_gets_it_once(self, bench: Bench) -> None:
        await _subscribe(bench, _wants("a", "user.signup"), _wants("a", "user.*"))
        await _publish(bench, NewEvent(id=bench.ids(), name="user.signup"))
        assert len(await bench.every_task()) == 1

    async def test_a_repeated_publish_changes_nothing(self, bench: Bench) -> None:
        await _subscribe(bench, _wants("a", "x"))
        event = NewEvent(id=bench.ids(), name="x")
        await _publish(bench, event)
        await _subscribe(bench, _wants("a", "x"), _wants("b", "x"))
        bench.clock.advance(1)
        assert await _publish(bench, event, event) == [Published(event.id, False, ("a",))] * 2
        assert len(await bench.every_task()) == 1

    async def test_two_events_of_one_call_may_be_the_same(self, bench: Bench) -> None:
        await _subscribe(bench, _wants("a", "x"))
        event = NewEvent(id=bench.ids(), name="x")
        assert [one.created for one in await _publish(bench, event, event)] == [True, False]
        assert len(await bench.every_task()) == 1

    async def test_it_may_overfill_a_queue(self, bench: Bench) -> None:
        await bench.change("full", capacity=0)
        await _subscribe(bench, _wants("a", "x", queue="full"), _wants("b", "x"))
        await _publish(bench, NewEvent(id=bench.ids(), name="x"))
        assert sorted(task.queue for task in await bench.every_task()) == ["default", "full"]

    async def test_it_rings(self, bench: Bench) -> None:
        await _subscribe(bench, _wants("a", "x", queue="q"))
        while await bench.store.wait(["q"], 0.01):
            pass
        await bench.store.publish([NewEvent(id=bench.ids(), name="x")])
        assert await bench.store.wait(["q"], 5)

    async def test_events_of_one_key_are_handled_in_order(self, bench: Bench) -> None:
        await _subscribe(bench, _wants("job", "x", ordered=True), _wants("other", "x"))
        events = [NewEvent(id=bench.ids(), name="x", key=key) for key in ("k", "k", "l", None)]
        await _publish(bench, *events)
        ids = {task.id: read_meta(task.meta).event for task in await bench.every_task() if task.handler == "job"}
        claims = [claim for claim in await bench.claim(10) if claim.handler == "job"]
        marks = [ids[claim.id] for claim in claims]
        assert {mark.id for mark in marks if mark} == {events[0].id, events[2].id, events[3].id}
        first = next(claim for claim in claims if (mark := ids[claim.id]) and mark.id == events[0].id)
        await bench.report(first, Failed(BROKEN))
        bench.clock.advance(5)
        again = await bench.take()
        assert again.id == first.id
        await bench.complete(again)
        following = await bench.take()
        mark = ids[following.id]
        assert mark is not None
        assert mark.id == events[1].id


class EventLog:
    async def test_it_is_read_newest_first_in_pages(self, bench: Bench) -> None:
        events = [NewEvent(id=bench.ids(), name="even" if n % 2 == 0 else "odd") for n in range(6)]
        await _publish(bench, *events)
        page = await bench.store.events(limit=2)
        assert [one.id for one in page] == [events[5].id, events[4].id]
        rest = await bench.store.events(before=page[-1].id)
        assert [one.id for one in rest] == [one.id for one in reversed(events[:4])]
        assert [one.id for one in await bench.store.events(name="odd", limit=2)] == [events[5].id, events[3].id]

    async def test_single_ones_are_found_by_id(self, bench: Bench) -> None:
        events = [NewEvent(id=bench.ids(), name="x", key="k", data='"text"') for _ in range(3)]
        await _publish(bench, *events)
        found = await bench.store.events([events[2].id, bench.ids(), events[0].id])
        assert [one.id for one in found] == [events[2].id, events[0].id]
        assert (found[0].key, found[0].data) == ("k", '"text"')

    async def test_old_ones_are_forgotten_and_their_tasks_stay(self, bench: Bench) -> None:
        await _subscribe(bench, _wants("a", "x"))
        await _publish(bench, NewEvent(id=bench.ids(), name="x"), NewEvent(id=bench.ids(), name="x"))
        bench.clock.advance(10)
        (kept,) = await _publish(bench, NewEvent(id=bench.ids(), name="x"))
        assert await bench.store.prune_events(bench.now - 5 * SECOND, limit=1) == 1
        assert await bench.store.prune_events(bench.now - 5 * SECOND) == 1
        assert await bench.store.prune_events(bench.now - 5 * SECOND) == 0
        assert [one.id for one in await bench.store.events()] == [kept.id]
        assert len(await bench.every_task()) == 3

    async def test_under_a_term_only_the_leader_forgets(self, bench: Bench) -> None:
        await _publish(bench, NewEvent(id=bench.ids(), name="x"))
        bench.clock.advance(10)
        with pytest.raises(NotLeader):
            await bench.store.prune_events(bench.now, term=99)
        lead = await bench.store.campaign(bench.me.number)
        assert await bench.store.prune_events(bench.now, term=lead.term) == 1


def _wants(handler: str, pattern: str, **options: Any) -> Subscription:
    return Subscription(handler=handler, pattern=pattern, **options)


async def _subscribe(bench: Bench, *subscriptions: Subscription) -> None:
    names = {one.handler for one in subscriptions}
    await bench.register(*names)
    session = await bench.session(*names, ttl=3600 * SECOND)
    assert await bench.store.declare(Declared(app="app", subscriptions=subscriptions), session=session.number)


async def _publish(bench: Bench, *events: NewEvent) -> list[Published]:
    answers = await bench.store.publish(events)
    await bench.look()
    return answers


__all__ = ["EventLog", "Publishing"]
