"""Where a running task is: asked by an operator, answered by its worker, also while its event loop is blocked."""

import asyncio
from typing import Any

import pytest

from pitboss.manager.stacks import frames_of
from pitboss.model.desired_state import DesiredState
from pitboss.model.errors import Refused, TimedOutWaiting
from pitboss.model.queue import Wish
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.stack import stack_key
from pitboss.operate.stacks import StackReading, read_stack
from pitboss.worker import stacks
from tests.manager.cluster import Cluster


def ask(cluster: Cluster, task: str) -> StackReading:
    found: StackReading = cluster.do(read_stack(cluster.engine, task, cluster.new_id, by="ann"))
    return found


def last(found: StackReading) -> str:
    """File and function of the innermost line of the app."""
    own = [line for line in found.stack.lines if "trouble.py" in line]
    return own[-1].rpartition("/")[2] if own else ""


def test_a_coroutine_a_thread_and_a_blocked_loop(troubled: Cluster) -> None:
    cluster = troubled
    manager = cluster.manager(workers=1, concurrency=4)
    cluster.until(lambda: manager.said("is ready"))
    (waits,), (in_thread,) = cluster.put("cleans_up", seconds=0.1), cluster.put("burns", seconds=60)
    cluster.until(lambda: len(cluster.workers()) == 1 and cluster.workers()[0].running == 2)
    found = ask(cluster, waits)
    assert last(found).endswith("in cleans_up")
    assert (found.stack.worker, found.stack.note, found.task.id) == ("default-1", "", waits)
    assert any("in sleep" in line for line in found.stack.lines)
    assert last(ask(cluster, in_thread)).endswith("in burns")
    (blocks,) = cluster.put("blocks_once", seconds=8)
    cluster.until(lambda: cluster.traced("blocks"))
    found = ask(cluster, blocks)
    assert "its event loop is blocked" in found.stack.note
    assert any("in blocks_once" in line for line in found.stack.lines)
    assert "60" not in "".join(found.stack.lines).replace("trouble.py:", ""), "values are not shown"
    cluster.until(lambda: not any(one.stacks for one in cluster.snapshots()), what="answers are forgotten")


def test_only_a_running_task_has_a_stack(troubled: Cluster) -> None:
    (task,) = troubled.put("quick")
    with pytest.raises(Refused, match="is pending"):
        ask(troubled, task)


def test_a_manager_that_does_not_answer_is_named(troubled: Cluster) -> None:
    async def halted() -> tuple[str, Any]:
        session = await troubled.engine.open_session(SessionInfo(host="box9", pid=77, handlers=("quick",)))
        (claim,) = (await troubled.engine.claim(ClaimRequest(session=session.number, slots=(Slot(free=1),)))).claims
        return claim.id, session

    troubled.put("quick")
    task, session = troubled.do(halted())
    with pytest.raises(TimedOutWaiting, match="box9"):
        ask(troubled, task)
    (wish,) = [one for one in troubled.do(troubled.engine.wishes()) if one.key == stack_key(session.number)]
    assert wish.value is None


def test_a_wish_that_cannot_be_read_asks_for_nothing() -> None:
    state = DesiredState()
    state.take([Wish(key=stack_key(3), value="[1]", version=1), Wish(key=stack_key(4), value="{}", version=2)])
    assert state.stacks([3, 4, 5]) == []


def test_frames_of_threads_are_read_from_the_outside_in() -> None:
    text = """Thread 0x1 (most recent call first):
  File "/a/b.py", line 3 in inner
  File "/a/b.py", line 9 in outer

Current thread 0x2 (most recent call first):
  File "/c d.py", line 1 in <module>
"""
    assert frames_of(text) == ["/a/b.py:9 in outer", "/a/b.py:3 in inner", "/c d.py:1 in <module>"]
    assert frames_of("") == []


async def test_a_chain_of_coroutines_is_followed() -> None:
    async def inner() -> None:
        await asyncio.sleep(60)

    async def outer() -> None:
        await inner()

    task = asyncio.create_task(outer())
    await asyncio.sleep(0)
    outer_line, inner_line, sleeping = stacks.of_coroutine(task.get_coro())
    task.cancel()
    assert outer_line.endswith(".outer")
    assert inner_line.endswith(".inner")
    assert sleeping.endswith("in sleep")
    assert stacks.of_coroutine(None) == ()
