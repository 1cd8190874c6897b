"""Why tasks of remote workers do not run, and that the verdict on the store does not blame managers or workers."""

from typing import Any

import msgspec

from pitboss.model.duration import SECOND
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import ClaimRequest, Session, SessionInfo, Slot
from pitboss.model.snapshot import ServerFigures, Snapshot, WorkerState
from pitboss.model.task import Claim
from pitboss.model.waiting import Why
from pitboss.operate.status import check_store, read_status
from pitboss.operate.why import explain
from pitboss.testing.conformance import Bench, Subject
from tests.operate.test_why import assert_faces_agree, shot

ECHO = HandlerInfo(name="echo", queue="echo", remote=True)
RUNNING = ServerFigures(url="http://127.0.0.1:8000", state="running", pid=7)
CLAIM = "it waits for a remote worker to claim it over HTTP"


async def echo(bench: Bench, **options: Any) -> str:
    await bench.store.register([ECHO])
    return (await bench.add(handler="echo", queue="echo", **options)).id


async def serving(bench: Bench) -> None:
    """The only manager is one of `pitboss serve`."""
    told = Snapshot(version="1", runs_tasks=False, http=RUNNING)
    await bench.renew(bench.me, msgspec.json.encode(told).decode())


async def opened(bench: Bench, kind: str, snapshot: object = None, host: str = "w1") -> Session:
    session = await bench.store.open_session(SessionInfo(host=host, kind=kind, ttl=120 * SECOND))
    if snapshot is not None:
        await bench.store.renew(session.number, msgspec.json.encode(snapshot).decode())
    return session


async def claimed(bench: Bench, lasts: int = 60) -> Claim:
    server = await opened(bench, "http")
    slot = Slot(free=1, queues=("echo",), handlers=("echo",), lasts=lasts * SECOND, worker="w1")
    (claim,) = (await bench.store.claim(ClaimRequest(session=server.number, slots=(slot,)))).claims
    return claim


async def why(bench: Bench, task: str) -> Why:
    found = (await explain(bench.store, task, bench.now)).why
    await assert_faces_agree(bench, task, found)
    return found


class TestRemoteTasks(Subject):
    async def test_without_a_server_no_worker_can_claim_it(self, bench: Bench) -> None:
        task = await echo(bench)
        await shot(bench, WorkerState.IDLE)
        found = await why(bench, task)
        assert (found.cause, found.stuck) == ("no-api", True)
        assert found.sentence == f"{CLAIM}, and no HTTP API runs on this store"
        assert found.helps == ("pitboss serve",)
        verdict = (await read_status(bench.store, bench.now)).verdict
        assert (verdict.cause, verdict.queue) == ("no-api", "echo")

    async def test_before_a_worker_has_asked_it_says_so_and_names_what_helps(self, bench: Bench) -> None:
        task = await echo(bench)
        await serving(bench)
        found = await why(bench, task)
        assert (found.cause, found.stuck) == ("no-remote-worker", True)
        assert found.sentence == f"{CLAIM}, and none has asked for echo"
        assert found.helps == ("python -m pitboss.remote worker.py:CLASS",)
        status = await read_status(bench.store, bench.now)
        assert (status.verdict.cause, status.verdict.queue) == ("no-remote-worker", "echo")
        assert "workers" not in {one.check for one in status.findings}

    async def test_a_queue_in_which_no_worker_looks_for_it_is_named(self, bench: Bench) -> None:
        """Regression: it was "the next one, starts at once", and was never claimed."""
        await bench.store.register([ECHO])
        task = (await bench.add(handler="echo", queue="other")).id
        await serving(bench)
        await opened(bench, "remote", {"types": ["echo"]})
        found = await why(bench, task)
        assert (found.cause, found.stuck) == ("remote-queue", True)
        assert found.sentence == f"{CLAIM}, and none looks in queue other for echo, but in echo"

    async def test_a_registered_worker_counts_for_its_types(self, bench: Bench) -> None:
        task = await echo(bench)
        await serving(bench)
        for number, card in enumerate(({"types": ["other"]}, {"types": ["echo"], "status": "offline"})):
            await opened(bench, "remote", card, f"w{number}")
        assert (await why(bench, task)).cause == "no-remote-worker"
        await opened(bench, "remote", {"types": ["echo"]}, "w8")
        await opened(bench, "remote", {"name": "all types"}, "w9")
        found = await why(bench, task)
        assert (found.cause, found.sentence) == ("ready", CLAIM)
        assert [gate.figure for gate in found.gates if gate.name == "remote"] == ["2 remote workers"]
        bench.clock.advance("3m")
        await serving(bench)
        assert (await why(bench, task)).cause == "no-remote-worker", "they were not heard of for two minutes"

    async def test_a_server_that_tells_what_was_asked_for_is_believed(self, bench: Bench) -> None:
        task = await echo(bench)
        await serving(bench)
        server = await opened(bench, "http")
        assert (await why(bench, task)).cause == "ready", "workers asked it for something, which it does not tell"
        await bench.store.renew(server.number, msgspec.json.encode({"asked": {"echo": bench.now}}).decode())
        assert (await why(bench, task)).cause == "ready"
        for _ in range(3):
            bench.clock.advance("1m")
            await bench.store.renew(server.number)
        await serving(bench)
        assert (await why(bench, task)).sentence == f"{CLAIM}, and none has asked for echo for 3m"

    async def test_those_before_it_are_counted(self, bench: Bench) -> None:
        await echo(bench)
        task = await echo(bench)
        await serving(bench)
        await opened(bench, "remote", {})
        assert (await why(bench, task)).sentence == f"{CLAIM}; 1 task is before it"

    async def test_a_running_one_names_its_worker_and_the_limit_of_its_claim(self, bench: Bench) -> None:
        task = await echo(bench)
        await serving(bench)
        claim = await claimed(bench)
        bench.clock.advance(10)
        said = "remote worker w1 runs it for 10s; its claim ends in 50s without a sign of life"
        assert (await explain(bench.store, task, bench.now)).why.sentence == said
        await bench.store.end_session(claim.token.session)
        assert (await explain(bench.store, task, bench.now)).why.sentence == said, "the claim outlives the server"
        bench.clock.advance(60)
        over = (await explain(bench.store, task, bench.now)).why
        assert (over.cause, over.stuck) == ("claim-over", False)
        assert over.sentence == "its remote worker gave no sign of life; it runs again within seconds"


class TestManagersWithoutWorkers(Subject):
    async def test_a_python_task_waits_for_its_app_and_not_for_the_server(self, bench: Bench) -> None:
        task = await bench.add()
        await serving(bench)
        found = (await explain(bench.store, task.id, bench.now)).why
        assert (found.cause, found.stuck) == ("handler", True)
        assert found.sentence == 'no live worker knows the handler "job"'

    async def test_remote_queues_are_not_missed_in_worker_pools(self, bench: Bench) -> None:
        await echo(bench)
        await bench.add()
        await shot(bench, WorkerState.IDLE, pool={"queues": ("default",)}, http=RUNNING)
        found = {one.check: (one.grade, one.what) for one in await check_store(bench.store, bench.clock, "")}
        assert found["queues"] == ("ok", "every queue with waiting tasks is served (1 queue)")
        assert found["handlers"] == ("ok", "1 handler, each with a live worker")
        assert found["http"] == ("ok", "the HTTP API is at http://127.0.0.1:8000")

    async def test_sessions_of_servers_and_workers_are_no_managers(self, bench: Bench) -> None:
        await echo(bench)
        await opened(bench, "http")
        await opened(bench, "remote", {})
        await bench.end(bench.me)
        verdict = (await read_status(bench.store, bench.now)).verdict
        assert verdict.sentence == "No manager is running; 1 task waits."

    async def test_a_server_that_was_given_up_is_told(self, bench: Bench) -> None:
        down = ServerFigures(url="http://127.0.0.1:8000", state="crashed", why="it cannot start: the port is taken")
        await shot(bench, WorkerState.IDLE, http=down)
        (found,) = [one for one in await check_store(bench.store, bench.clock, "") if one.check == "http"]
        assert (found.grade, found.why) == ("warning", "it cannot start: the port is taken")
