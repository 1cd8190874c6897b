"""Which tasks a command is about: ids, pieces of ids, or the filter that people write everywhere."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.filter import EVERYTHING, Filter, by, parsed

if TYPE_CHECKING:
    from pitboss.engines.protocol import Ledger
    from pitboss.model.task import Task

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z", re.IGNORECASE)
_PIECE = re.compile(r"[0-9a-f][0-9a-f-]{5,35}\Z", re.IGNORECASE)


def filter_of(words: Sequence[str] | None) -> Filter:
    """The filter that the words make together."""
    return parsed(" ".join(words or ()))


def picked(words: Sequence[str] | None, *, everything: bool) -> Filter:
    """What a bulk act is about. Nothing at all is refused: it would be all tasks, and hardly meant so."""
    given = [word.strip() for word in words or ()]
    if not given:
        if everything:
            return EVERYTHING
        raise InvalidInput(
            "it is not said which tasks are meant",
            why="without ids or a filter it would be all of them",
            fix="give ids, a filter such as queue:mail, or --all",
        )
    if all(_ID.match(word) for word in given):
        return by(id=[word.lower() for word in given])
    if any(_ID.match(word) for word in given):
        raise InvalidInput(
            "ids and a filter cannot be mixed",
            why="a filter's words must all hold, so only one of the ids could match",
            fix="give ids only, or write one filter such as id:A,B queue:mail",
        )
    return filter_of(given)


async def found(store: "Ledger", text: str) -> "Task":
    """The task with this id, or the only one whose id begins or ends with this piece."""
    piece = text.strip().lower()
    if _ID.match(piece):
        task = (await store.get([piece]))[0]
        matches = [task] if task else []
    elif _PIECE.match(piece):
        matches = (await store.find(by(id=[f"{piece}*", f"*{piece}"]), limit=3)).tasks
    else:
        raise InvalidInput(
            f"{text!r:.60} is not a task's id",
            why="an id is a UUID; six or more of its first or last characters are enough",
            fix="pitboss tasks list shows ids",
        )
    if len(matches) > 1:
        raise InvalidInput(
            f"{text} means several tasks", why=", ".join(task.id for task in matches), fix="give more of the id"
        )
    if not matches:
        raise NotFound(
            f"there is no task {text}",
            why="it was never in this store, or it finished long ago and was pruned",
            fix="check the id and the store; pitboss tasks list shows what there is",
        )
    return matches[0]
