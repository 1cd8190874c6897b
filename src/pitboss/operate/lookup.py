"""Finds what a person named: a task or batch by its id or a piece of it, a handler by its name."""

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Protocol

from pitboss.engines.capabilities import batches_of
from pitboss.engines.protocol import MOST_READ, Ledger
from pitboss.model.batch import Batch
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.filter import by
from pitboss.model.queue import HandlerInfo, checked_name, is_reserved
from pitboss.model.task import Task

ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z", re.IGNORECASE)
_PIECE = re.compile(r"[0-9a-f][0-9a-f-]{5,35}\Z", re.IGNORECASE)
_BATCHES_SEARCHED = 10_000
_PAGES_SEARCHED = 10
_SHOWN = 5
_NAMES_SHOWN = 10
_NOUNS = {
    "task": ("a task", "tasks"),
    "batch": ("a batch", "batches"),
    "event": ("an event", "events"),
    "operation": ("an operation", "operations"),
}


class Registry(Protocol):
    """Where handlers are registered."""

    async def handlers(self) -> list[HandlerInfo]: ...


async def find_task(store: Ledger, text: str, *, pages: int = _PAGES_SEARCHED) -> Task:
    """The task with this id, or the only one whose id begins or ends with this piece. For the end of an id this many
    pages of the newest tasks are searched."""
    piece = text.strip().lower()
    matches: list[Task]
    further = False
    if ID.match(piece):
        task = (await store.get([piece]))[0]
        matches = [task] if task else []
    elif _PIECE.match(piece):
        matches, further = await _with_piece(store, piece, pages)
    else:
        raise _no_id(text, "task")
    refuse_several(text, [task.id for task in matches], "tasks")
    if not matches:
        looked = f"none of the newest {pages * MOST_READ:,} tasks ends like this"
        raise NotFound(
            f"there is no task {text}",
            why=looked if further else "it was never in this store, or it finished long ago and was pruned",
            fix="check the id and the store; pitboss tasks list shows the tasks" + "; give the whole id" * further,
        )
    return matches[0]


async def _with_piece(store: Ledger, piece: str, pages: int) -> tuple[list[Task], bool]:
    """Tasks whose id begins with the piece, or else some of the newest whose id ends with it; whether there are older
    ones. Only the beginning of an id is found by an index."""
    page = await store.find(by(id=f"{piece}*"), limit=3)
    if page.tasks:
        return page.tasks, False
    for _ in range(pages):
        page = await store.find(by(id=f"*{piece}"), limit=3, after=page.next)
        if page.tasks or page.next is None:
            break
    return page.tasks, page.next is not None


async def find_batch(store: object, text: str) -> Batch:
    """The batch with this id, or the only one whose id begins or ends with this piece."""
    batches = batches_of(store)
    piece = text.strip().lower()
    if ID.match(piece):
        matches = await batches.batches([piece])
    elif _PIECE.match(piece):
        known = await batches.batches(limit=_BATCHES_SEARCHED)
        matches = [batch for batch in known if batch.id.startswith(piece) or batch.id.endswith(piece)]
    else:
        raise _no_id(text, "batch")
    refuse_several(text, [batch.id for batch in matches], "batches")
    if not matches:
        raise NotFound(
            f"there is no batch {text}",
            why="it was never in this store, or it was deleted, or it ended long ago and was pruned",
            fix="check the id and the store; pitboss batches list shows the batches",
        )
    return matches[0]


async def find_handler(store: Registry, name: str, *, held: bool | None = None) -> HandlerInfo:
    """The handler as registered. `held` True also takes an unknown name; None: the caller does not offer that."""
    known = {handler.name: handler for handler in await store.handlers() if not is_reserved(handler.name)}
    if name in known or held:
        return known.get(name) or HandlerInfo(name=checked_name(name, "task"))
    close = get_close_matches(name, known, n=3) or sorted(known)[:_NAMES_SHOWN]
    raise NotFound(
        f'no handler "{name}" is registered in this store',
        why=f"it knows {', '.join(close)}" if close else "no manager has run on it yet",
        fix="check the name, or start its app with pitboss up"
        + ("" if held is None else "; --held stores the task anyway, until a worker knows the handler"),
    )


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant."""
    return next(iter(get_close_matches(word, list(known), n=1)), None)


def did_you_mean(word: str, known: Collection[str], otherwise: str) -> str:
    close = closest(word, known)
    return otherwise if close is None else f"did you mean {close}?"


def checked_piece(text: str, what: str) -> str:
    """A piece of an id, long enough to search for."""
    piece = text.strip().lower()
    if not _PIECE.match(piece):
        raise _no_id(text, what)
    return piece


def _no_id(text: str, what: str) -> InvalidInput:
    return InvalidInput(
        f"{text!r:.60} is not the id of {_NOUNS[what][0]}",
        why="an id is a UUID; six or more of its first or last characters are enough",
        fix=f"pitboss {_NOUNS[what][1]} list shows ids",
    )


def refuse_several(text: str, ids: list[str], what: str) -> None:
    if len(ids) > 1:
        raise InvalidInput(f"{text} matches several {what}", why=", ".join(ids[:_SHOWN]), fix="give more of the id")
