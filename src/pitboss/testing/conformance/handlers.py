"""Handlers: the registry, and tasks that wait for an unknown handler."""

from msgspec.structs import replace

from pitboss.model.queue import HandlerInfo
from pitboss.model.session import Reclaimed, Slot
from pitboss.model.states import State
from pitboss.testing.conformance.bench import Bench


class HandlerRegistry:
    async def test_handlers_are_kept_and_shown_by_name(self, bench: Bench) -> None:
        mail = HandlerInfo(name="mail", queue="post", policy='{"max_attempts":3}', schema='{"type":"object"}')
        await bench.store.register([mail, HandlerInfo(name="a.b:c-d_e")])
        assert await _declared(bench) == [HandlerInfo(name="a.b:c-d_e"), HandlerInfo(name="job"), mail]

    async def test_registering_again_replaces(self, bench: Bench) -> None:
        new = HandlerInfo(name="job", queue="else", policy='{"timeout":1}')
        await bench.store.register([new])
        assert await _declared(bench) == [new]

    async def test_what_is_said_of_a_task_type_is_kept(self, bench: Bench) -> None:
        remote = HandlerInfo(name="video", queue="video", remote=True, about='{"version":"2"}')
        await bench.store.register([remote])
        assert remote in await _declared(bench)

    async def test_every_handler_has_a_number_of_its_own_and_keeps_it(self, bench: Bench) -> None:
        await bench.store.register([HandlerInfo(name="b"), HandlerInfo(name="a"), HandlerInfo(name="b")])
        numbers = {handler.name: handler.number for handler in await bench.store.handlers()}
        assert sorted(numbers.values()) == [1, 2, 3]
        bench.clock.advance("1s")
        await bench.store.register([HandlerInfo(name="a", queue="else"), HandlerInfo(name="c")])
        again = {handler.name: handler.number for handler in await bench.store.handlers()}
        assert again == {**numbers, "c": 4}

    async def test_the_times_say_when_a_handler_came_and_when_it_changed(self, bench: Bench) -> None:
        began = bench.now
        bench.clock.advance("1s")
        await bench.store.register([HandlerInfo(name="job")])
        (job,) = await bench.store.handlers()
        assert (job.created_at, job.updated_at) == (began, began)
        bench.clock.advance("1s")
        await bench.store.register([HandlerInfo(name="job", about='{"version":"2"}')])
        (job,) = await bench.store.handlers()
        assert (job.created_at, job.updated_at) == (began, bench.now)

    async def test_registering_nothing_is_harmless(self, bench: Bench) -> None:
        await bench.store.register([])
        await bench.store.forget([])
        await bench.store.forget(["never known"])
        assert [handler.name for handler in await bench.store.handlers()] == ["job"]

    async def test_a_forgotten_handler_holds_new_tasks_and_leaves_old_ones(self, bench: Bench) -> None:
        old = await bench.add()
        await bench.store.forget(["job"])
        assert await bench.store.handlers() == []
        new = await bench.add()
        assert await bench.states(old, new) == [State.PENDING, State.HELD]
        assert (await bench.take()).id == old.id

    async def test_registering_releases_held_tasks(self, bench: Bench) -> None:
        now, later = await bench.add(handler="new"), await bench.add(handler="new", delay=5_000)
        other = await bench.add(handler="other")
        await bench.register("new")
        await bench.became(now, state=State.PENDING, reason=None)
        await bench.became(later, state=State.SCHEDULED, reason=None)
        await bench.became(other)

    async def test_a_held_task_whose_time_came_is_released_as_pending(self, bench: Bench) -> None:
        task = await bench.add(handler="new", delay=5_000)
        bench.clock.advance("5ms")
        await bench.register("new")
        await bench.became(task, state=State.PENDING, reason=None)

    async def test_a_task_for_another_session_s_handler_waits(self, bench: Bench) -> None:
        await bench.register("other")
        await bench.session("other")
        task = await bench.add(handler="other")
        assert (await bench.ask(handlers=["job"])).claims == []
        await bench.became(task)

    async def test_a_task_that_no_live_session_can_run_is_held(self, bench: Bench) -> None:
        await bench.register("other")
        task, mine = await bench.add(handler="other"), await bench.add()
        claimed = await bench.ask(handlers=["job"])
        assert [claim.id for claim in claimed.claims] == [mine.id]
        await bench.became(task, state=State.HELD, reason="handler")

    async def test_a_dead_session_s_knowledge_does_not_count(self, bench: Bench) -> None:
        await bench.register("other")
        ended, expired = await bench.session("other"), await bench.session("other", ttl=1_000)
        task = await bench.add(handler="other")
        await bench.end(ended)
        bench.clock.advance("999us")
        await bench.ask(handlers=["job"])
        await bench.became(task)
        bench.clock.advance_to(expired.expires_at)
        await bench.ask(handlers=["job"])
        await bench.became(task, state=State.HELD, reason="handler")

    async def test_a_session_that_knows_the_handler_releases_the_held(self, bench: Bench) -> None:
        await bench.register("other")
        task = await bench.add(handler="other")
        await bench.ask(handlers=["job"])
        session = await bench.session("other")
        await bench.became(task, state=State.PENDING, reason=None)
        assert (await bench.take(session=session)).id == task.id

    async def test_a_session_releases_only_its_own_handlers(self, bench: Bench) -> None:
        task = await bench.add(handler="stranger")
        await bench.session("job", "third")
        await bench.became(task)

    async def test_a_sweep_releases_what_is_known_by_now(self, bench: Bench) -> None:
        await bench.register("other")
        task = await bench.add(handler="other")
        await bench.ask(handlers=["job"])
        await bench.session("other")
        stranger = await bench.add(handler="stranger")
        await bench.reclaim()
        await bench.became(task)
        await bench.became(stranger)
        assert await bench.reclaim() == Reclaimed()

    async def test_a_sweep_leaves_what_no_live_session_knows(self, bench: Bench) -> None:
        """Otherwise claims would hold it and sweeps release it, for ever."""
        await bench.register("other")
        task = await bench.add(handler="other")
        await bench.ask(handlers=["job"])
        held = await bench.became(task, state=State.HELD, reason="handler")
        assert await bench.reclaim() == Reclaimed()
        await bench.became(held)

    async def test_a_request_without_handlers_takes_every_handler(self, bench: Bench) -> None:
        await bench.register("other")
        task = await bench.add(handler="other")
        assert [claim.id for claim in (await bench.ask(Slot(free=1), handlers=None)).claims] == [task.id]

    async def test_a_request_with_no_handler_at_all_takes_nothing(self, bench: Bench) -> None:
        task = await bench.add()
        assert (await bench.ask(handlers=[])).claims == []
        await bench.became(task)

    async def test_held_tasks_cost_a_claim_nothing_but_stay(self, bench: Bench) -> None:
        held = [await bench.add(handler="stranger", priority=-5) for _ in range(3)]
        task = await bench.add()
        assert [claim.id for claim in await bench.claim(5)] == [task.id]
        assert await bench.states(*held) == [State.HELD] * 3


async def _declared(bench: Bench) -> list[HandlerInfo]:
    """The handlers without what the store adds."""
    known = await bench.store.handlers()
    assert len({handler.number for handler in known}) == len(known)
    return [replace(handler, number=0, created_at=0, updated_at=0) for handler in known]
