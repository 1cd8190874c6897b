"""Answers what handlers ask of the store: enqueue, look, cancel. Workers have no store of their own."""

from typing import Any, Protocol

import msgspec

from pitboss.engines.protocol import Control, Engine, Handlers, Ledger
from pitboss.manager import batch_answers, resource_answers
from pitboss.model.errors import PitbossError
from pitboss.model.filter import Filter
from pitboss.model.queue import HandlerInfo
from pitboss.model.task import NewTask
from pitboss.worker.frames import MAX_FRAME, AnswerMessage, AskMessage

_LARGEST = MAX_FRAME // 2
_ARGUMENTS: dict[str, Any] = {
    "put": tuple[list[NewTask]],
    "get": tuple[list[str]],
    "cancel": tuple[Filter, str, int],
    "register": tuple[list[HandlerInfo]],
    "handlers": tuple[()],
    "find": tuple[Filter, int, str | None, bool],
    **batch_answers.ARGUMENTS,
    **resource_answers.ARGUMENTS,
}


class Store(Engine, Ledger, Control, Handlers, Protocol):
    """What handlers may ask for."""


async def answer(store: Store, ask: AskMessage) -> AnswerMessage:
    """The store's answer, or its error as data."""
    try:
        value = await _done(store, ask)
    except PitbossError as error:
        return AnswerMessage(ask.number, error=(error.code, error.what, error.why, error.fix))
    except Exception as error:
        return AnswerMessage(ask.number, error=("error", f"{type(error).__name__}: {error}", "", ""))
    data = msgspec.msgpack.encode(value)
    if len(data) > _LARGEST:
        # A frame that is too long would cut the worker off, with everything that it runs.
        why = f"a worker is answered in one message of at most {_LARGEST:,} bytes"
        fix = "ask for less at a time, or from a process that has the store itself"
        return AnswerMessage(ask.number, error=("invalid-input", f"the answer has {len(data):,} bytes", why, fix))
    return AnswerMessage(ask.number, data)


async def _done(store: Store, ask: AskMessage) -> Any:
    arguments: Any = msgspec.msgpack.decode(ask.arguments, type=_ARGUMENTS[ask.verb])
    if ask.verb in resource_answers.ARGUMENTS:
        return await resource_answers.done(store, ask.verb, arguments)
    if ask.verb in batch_answers.ARGUMENTS:
        return await batch_answers.done(store, ask.verb, arguments)
    match ask.verb:
        case "put":
            return await store.put(*arguments)
        case "get":
            return await store.get(*arguments)
        case "find":
            wanted, limit, after, oldest_first = arguments
            return await store.find(wanted, limit=limit, after=after, oldest_first=oldest_first)
        case "cancel":
            wanted, reason, limit = arguments
            return await store.cancel(wanted, reason=reason, limit=limit)
        case "register":
            return await store.register(*arguments)
        case _:
            return await store.handlers()
