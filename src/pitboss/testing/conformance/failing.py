"""Every way to fail for good puts the task's fallback and its dead letter, exactly once."""

from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from pitboss.model.canonical import from_json
from pitboss.model.duration import SECOND
from pitboss.model.filter import by
from pitboss.model.meta import read_meta
from pitboss.model.outcome import Crashed, Failed, Outcome, TimedOut, decide
from pitboss.model.policy import MAX_CRASHES, Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import FAILURES, State
from pitboss.model.task import Claim, Task, Token
from pitboss.testing.conformance.bench import BROKEN, STEADY, Bench

ONCE = Policy(max_attempts=1)
FINAL = replace(BROKEN, retryable=False)
PARAMS = '{"n":1}'


async def _last_attempt(bench: Bench) -> str:
    claim = await _running(bench)
    await bench.report(claim, Failed(BROKEN), ONCE)
    return claim.id


async def _not_retryable(bench: Bench) -> str:
    claim = await _running(bench)
    await bench.report(claim, Failed(FINAL))
    return claim.id


async def _timed_out(bench: Bench) -> str:
    claim = await _running(bench)
    await bench.report(claim, TimedOut(BROKEN), ONCE)
    return claim.id


async def _expires_soon(bench: Bench) -> str:
    claim = await _running(bench, expires_in=SECOND)
    await bench.report(claim, Failed(BROKEN), STEADY)
    return claim.id


async def _crashed(bench: Bench) -> str:
    claim = await _running(bench)
    for _ in range(MAX_CRASHES - 1):
        await bench.report(claim, Crashed(alone=True))
        claim = await bench.take()
    await bench.report(claim, Crashed(alone=True))
    return claim.id


async def _unstorable(bench: Bench) -> str:
    claim = await _running(bench)
    await bench.report(claim, Failed(replace(FINAL, category="result", message="the result cannot be stored")))
    return claim.id


async def _ran_out(bench: Bench) -> str:
    task = await bench.add(params=PARAMS)
    for _ in range(MAX_CRASHES):
        (claim,) = (await bench.ask(Slot(free=1, lasts=SECOND))).claims
        assert claim.id == task.id
        bench.clock.advance(2)
        await bench.reclaim()
    return task.id


async def _expired(bench: Bench) -> str:
    task = await bench.add(params=PARAMS, expires_in=SECOND)
    bench.clock.advance(2)
    await bench.claim(1, "default")
    return task.id


WAYS: dict[str, Callable[[Bench], Awaitable[str]]] = {
    "last attempt": _last_attempt,
    "not retryable": _not_retryable,
    "timed out": _timed_out,
    "expires before its next attempt": _expires_soon,
    "crashed too often": _crashed,
    "result cannot be stored": _unstorable,
    "claims ran out": _ran_out,
    "expired": _expired,
}


class Failing:
    def test_every_way_is_tried(self) -> None:
        assert WAYS.keys() == FAILURES.keys()

    @pytest.mark.parametrize("way", WAYS)
    async def test_a_failure_puts_fallback_and_dead_letter(self, bench: Bench, way: str) -> None:
        await _routes(bench)
        failed = await bench.task(await WAYS[way](bench))
        assert failed.state is (State.CANCELLED if way == "expired" else State.FAILED)
        fallback, letter = await _followers(bench, failed)
        assert (fallback.handler, fallback.queue, fallback.params) == ("instead", "other", PARAMS)
        assert (fallback.state, fallback.parent) == (State.PENDING, failed.id)
        mark = read_meta(fallback.meta).failure
        assert mark is not None
        assert (mark.id, mark.handler, mark.attempts, mark.chain) == (failed.id, "job", failed.attempts, ("job",))
        assert (letter.handler, letter.queue, letter.parent) == ("bury", "graves", failed.id)
        dead = from_json(letter.params)["dead"]
        assert (dead["id"], dead["handler"], dead["params"]) == (failed.id, "job", {"n": 1})
        assert dead["attempts"] == failed.attempts
        assert (dead["error"] or {}).get("message") == (failed.error.message if failed.error else None)

    @pytest.mark.parametrize("way", WAYS)
    async def test_a_repeated_settlement_or_sweep_puts_nothing_more(self, bench: Bench, way: str) -> None:
        await _routes(bench)
        failed = await bench.task(await WAYS[way](bench))
        await bench.reclaim()
        await bench.claim(1, "empty")
        if FAILURES[way] == "settle":
            claim = Claim(
                id=failed.id,
                token=Token(failed.session or 0, failed.claim),
                handler="job",
                queue="default",
                params=PARAMS,
                attempt=1,
                max_attempts=1,
                crashes=MAX_CRASHES,
            )
            ends: dict[str | None, Outcome] = {"timed_out": TimedOut(BROKEN), "crashed": Crashed(alone=True)}
            assert (await bench.report(claim, ends.get(failed.outcome, Failed(FINAL)))).applied
        assert len(await _followers(bench, failed)) == 2

    async def test_without_routes_nothing_follows(self, bench: Bench) -> None:
        await _last_attempt(bench)
        assert len(await bench.every_task()) == 1

    async def test_a_failure_that_is_tried_again_puts_nothing(self, bench: Bench) -> None:
        await _routes(bench)
        await bench.report(await _running(bench), Failed(BROKEN))
        assert len(await bench.every_task()) == 1

    async def test_each_failure_after_a_retry_is_followed(self, bench: Bench) -> None:
        await _routes(bench)
        task = await _last_attempt(bench)
        await bench.retry(task)
        await bench.report(await bench.take("default"), Failed(BROKEN), ONCE)
        assert len(await _followers(bench, await bench.task(task))) == 4

    async def test_what_follows_may_overfill_a_queue(self, bench: Bench) -> None:
        await _routes(bench)
        await bench.change("other", capacity=0)
        await bench.change("graves", capacity=0)
        failed = await bench.task(await _last_attempt(bench))
        assert len(await _followers(bench, failed)) == 2

    async def test_an_unknown_fallback_is_held(self, bench: Bench) -> None:
        await bench.store.register([HandlerInfo(name="job", about='{"fallback":"stranger"}')])
        failed = await bench.task(await _last_attempt(bench))
        (fallback,) = await _followers(bench, failed)
        assert (fallback.state, fallback.reason, fallback.queue) == (State.HELD, "handler", "default")

    async def test_fallbacks_go_on_until_one_would_come_twice(self, bench: Bench) -> None:
        await bench.store.register(
            [
                HandlerInfo(name="job", about='{"fallback":"second"}'),
                HandlerInfo(name="second", about='{"fallback":"job"}'),
            ]
        )
        await bench.session("job", "second")
        await _last_attempt(bench)
        await bench.report(await bench.take(), Failed(BROKEN), ONCE)
        assert sorted(task.handler for task in await bench.every_task()) == ["job", "second"]

    async def test_a_dead_letter_that_fails_is_not_buried_itself(self, bench: Bench) -> None:
        about = '{"dead_letters":["*"],"fallback":"job"}'
        await bench.store.register([HandlerInfo(name="bury", about=about)])
        await bench.session("job", "bury")
        await _last_attempt(bench)
        await bench.report(await bench.take(), Failed(BROKEN), ONCE)
        assert sorted(task.handler for task in await bench.every_task()) == ["bury", "job"]

    async def test_a_dead_letter_handler_gets_only_its_queues(self, bench: Bench) -> None:
        await _routes(bench)
        claim = await bench.started(queue="elsewhere", params=PARAMS)
        await bench.report(claim, Failed(BROKEN), ONCE)
        assert [task.handler for task in await _followers(bench, await bench.task(claim.id))] == ["instead"]

    async def test_what_the_task_carries_goes_on(self, bench: Bench) -> None:
        await _routes(bench)
        meta = '{"event":{"id":"e","name":"x"},"trace":{"parent":"00-1"}}'
        claim = await bench.started(params=PARAMS, meta=meta, priority=3, tags=("red",))
        assert claim.meta == meta
        await bench.report(claim, Failed(BROKEN), ONCE)
        fallback, letter = await _followers(bench, await bench.task(claim.id))
        for task in (fallback, letter):
            assert from_json(task.meta or "")["trace"] == {"parent": "00-1"}
            assert from_json(task.meta or "")["event"] == {"id": "e", "name": "x"}
        assert (fallback.priority, fallback.tags) == (3, ("red",))

    async def test_many_failures_of_one_call(self, bench: Bench) -> None:
        await _routes(bench)
        await bench.put(*(bench.new(params=PARAMS) for _ in range(20)))
        ends = [
            Settlement(id=one.id, token=one.token, transition=decide(one, Failed(BROKEN), ONCE, bench.now, 0.5))
            for one in await bench.claim(20)
        ]
        assert all(answer.applied for answer in await bench.settle(*ends))
        assert (
            (await bench.store.count(by(task="instead"))).number
            == (await bench.store.count(by(task="bury"))).number
            == 20
        )


async def _running(bench: Bench, **options: object) -> Claim:
    return await bench.started(params=PARAMS, **options)


async def _routes(bench: Bench) -> None:
    await bench.store.register(
        [
            HandlerInfo(name="job", about='{"fallback":"instead"}'),
            HandlerInfo(name="instead", queue="other"),
            HandlerInfo(name="bury", queue="graves", about='{"dead_letters":["default"],"parameter":"dead"}'),
        ]
    )


async def _followers(bench: Bench, failed: Task) -> list[Task]:
    """What was put for a failed task: the fallback first."""
    tasks = [task for task in await bench.every_task() if task.parent == failed.id]
    return sorted(tasks, key=lambda task: (task.handler == "bury", task.id))


__all__ = ["Failing"]
