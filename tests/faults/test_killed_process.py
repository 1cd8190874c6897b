"""A real process dies of SIGKILL at a failpoint; another one cleans up after it, and the two histories are judged."""

import asyncio
import signal
import sys
import time
from itertools import product
from pathlib import Path

import pytest

from pitboss.model.outcome import Completed, decide
from pitboss.model.policy import Policy
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.testing.checker import check, final
from pitboss.testing.history import History
from pitboss.testing.recorded import Recorded, recorded
from pitboss.wiring import SystemClock, make_engine
from tests.faults.stores import MakeUrl
from tests.races.workload import told

ROOT = Path(__file__).resolve().parents[2]
POINTS = ("put.after", "claim.after", "settle.commit", "settle.after")
NTH = 9
SECONDS = 30.0


async def run_child(url: str, history: Path, name: str) -> int | None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.child", url, str(history), name, str(NTH), cwd=ROOT
    )
    async with asyncio.timeout(SECONDS):
        return await process.wait()


async def clean_up(store: Recorded) -> None:
    """What a successor on the same host does: end the dead session, sweep, and run everything to its end."""
    for session in await store.sessions():
        await store.end_session(session.number)
    await store.reclaim()
    mine = await store.open_session(SessionInfo(host="parent", handlers=("job",)))
    while True:
        claimed = await store.claim(ClaimRequest(session=mine.number, slots=(Slot(free=50),)))
        if claimed.claims:
            await store.settle(
                [
                    Settlement(
                        id=claim.id,
                        token=claim.token,
                        transition=decide(claim, Completed("null"), Policy(), claim.claimed_at, 0.5),
                    )
                    for claim in claimed.claims
                ]
            )
        elif claimed.next_due is not None:
            # A retry of the child's falls due within milliseconds.
            await store.wait(None, 0.005)
        else:
            return


@pytest.mark.parametrize(("engine", "name"), list(product(("sqlite", "postgres"), POINTS)))
async def test_promises_hold_when_a_process_is_killed(
    engine: str, name: str, make_url: MakeUrl, tmp_path: Path
) -> None:
    url, child, parent = make_url(engine), tmp_path / "child.jsonl", tmp_path / "parent.jsonl"
    assert await run_child(url, child, name) == -signal.SIGKILL, "the fault did not bite"
    history = History(order=time.monotonic_ns, file=parent)
    store = recorded(make_engine(url), history, "parent", clock=SystemClock())
    await store.open()
    try:
        await clean_up(store)
        end = await final(store)
    finally:
        await store.close()
        history.close()
    both = History.read(child, parent)
    last = [event for event in both.entries if event.process == "child"][-1]
    assert last.phase == "invoke", "the last call of a killed process has no end"
    assert all(task.state in (State.COMPLETED, State.FAILED) for task in end.tasks)
    found = check(both, end)
    assert not found, told(found, 0)
