"""Work that is done while a statement is under way; and the names of statements."""

import asyncio
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from pitboss.engines import statements
from pitboss.engines.postgres.script import PARTS, beside

steps: list[str] = []


def _work(fails: bool = False) -> Iterator[None]:
    for number in range(3):
        steps.append(f"step {number}")
        yield
    if fails:
        raise ValueError("the work went wrong")


async def _asked(begun: asyncio.Event, go: asyncio.Event, error: Exception | None = None) -> None:
    steps.append("asked")
    begun.set()
    try:
        await go.wait()
    except asyncio.CancelledError:
        steps.append("recalled")
        raise
    if error is not None:
        raise error
    steps.append("answered")


@pytest.fixture(autouse=True)
def _afresh() -> None:
    steps.clear()


async def test_the_work_is_done_while_the_answer_is_awaited() -> None:
    go = asyncio.Event()

    def work() -> Iterator[None]:
        yield from _work()
        go.set()

    await beside(_asked(asyncio.Event(), go), work())
    assert steps == ["asked", "step 0", "step 1", "step 2", "answered"]


async def test_a_statement_that_fails_fails_the_call_after_the_work() -> None:
    go = asyncio.Event()
    go.set()
    with pytest.raises(KeyError):
        await beside(_asked(asyncio.Event(), go, KeyError("refused")), _work())
    assert steps == ["asked", "step 0", "step 1", "step 2"]


async def test_work_that_fails_recalls_the_statement() -> None:
    with pytest.raises(ValueError, match="went wrong"):
        await beside(_asked(asyncio.Event(), asyncio.Event()), _work(fails=True))
    assert steps[-1] == "recalled"


async def test_a_cancelled_call_recalls_its_statement() -> None:
    begun = asyncio.Event()

    def endless() -> Iterator[None]:
        while True:
            yield

    both = asyncio.ensure_future(beside(_asked(begun, asyncio.Event()), endless()))
    await begun.wait()
    both.cancel()
    with pytest.raises(asyncio.CancelledError):
        await both
    assert steps == ["asked", "recalled"]


def _modules() -> Iterator[Path]:
    return Path(str(files("pitboss.engines.postgres"))).glob("*.py")


def test_every_statement_has_a_name_that_the_code_knows() -> None:
    texts = [path.read_text(encoding="utf-8") for path in _modules()]
    quoted = {name for text in texts for name in re.findall(r'"(\w+)"', text)}
    asked = {
        name for text in texts for name in re.findall(r'(?:\.ask|\.text|_read|_write|_act_once)\(\s*"(\w+)"', text)
    }
    there = {name for name in statements.load("pitboss.engines.postgres.sql") if not name.endswith(PARTS)}
    defined = {name for text in texts for name in re.findall(r'\.define\(\s*"(\w+)"', text)}
    assert there - quoted == set()
    assert asked - there - defined == set()


def test_every_part_of_a_statement_is_used() -> None:
    found = statements.load("pitboss.engines.postgres.sql")
    texts = [*found.values(), *(path.read_text(encoding="utf-8") for path in _modules())]
    unused = [name for name in found if name.endswith(PARTS) and not any(f"{{{name}}}" in text for text in texts)]
    assert unused == []
