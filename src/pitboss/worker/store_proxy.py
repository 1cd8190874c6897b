"""The store as a worker sees it: every call goes over the worker's socket to its manager, which has the store.

The verbs are those of the protocol that are open to workers. The few that this file spells out differ here.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from copy import copy
from itertools import count
from typing import Any, Self

from pitboss.engines.host_clock import SystemClock
from pitboss.engines.protocol import Page
from pitboss.engines.verbs import Verb, verbs
from pitboss.model import errors
from pitboss.model.access import AuditEntry
from pitboss.model.declared import Declared
from pitboss.model.duration import Span
from pitboss.model.errors import InvalidInput, MemberRemoved, PitbossError, StaleLease, StoreUnavailable
from pitboss.model.filter import Filter
from pitboss.model.resource import Declaration, KeyValue, PoolRules
from pitboss.worker.channel import MAX_FRAME, AnswerMessage, AskMessage

# Other messages may go out in the same frame, and a frame that is too long would cut the worker off.
_LARGEST = MAX_FRAME // 2
_MOST_FOUND = 100


class StoreProxy:
    """What the client needs of a store, by asking the manager. Callable from any loop of the process."""

    name = "manager"

    def __init__(self, say: Callable[[AskMessage], None], clock_offset: Span | None = None) -> None:
        self._say, self.clock = say, SystemClock()
        if clock_offset is not None:
            self.clock.set_offset(clock_offset)
        self._loop = asyncio.get_running_loop()
        # The thread that hears the answers: it must not wait for one.
        self.heard_in = threading.get_ident()
        self._asked: dict[int, asyncio.Future[AnswerMessage]] = {}
        self._numbers = count(1)
        self._entry: AuditEntry | None = None

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    def audited(self, entry: AuditEntry) -> Self:
        """Send the entry along with each call: the manager stores it with those that change something."""
        audited = copy(self)
        audited._entry = entry
        return audited

    async def declare_pool(
        self, name: str, rules: PoolRules | None, *, by: str | None = None, replace: bool = True
    ) -> Declaration | None:
        """Do nothing: the manager has declared the pools of the app, with what its settings say of them."""
        return None

    async def declare(self, declared: Declared, *, session: int | None = None) -> bool:
        """Do nothing: the manager has declared what the app declares."""
        return True

    async def limit_pool(
        self, name: str, values: dict[str, KeyValue], *, by: str | None = None, reset: bool = False
    ) -> bool:
        """Refuse: only operators limit pools."""
        raise InvalidInput(
            f'a worker may not limit the pool "{name}"',
            why="limits are an operator's",
            fix="use pitboss resources limit",
        )

    async def find(
        self, wanted: Filter, *, limit: int = 50, after: str | None = None, oldest_first: bool = False
    ) -> Page:
        """As the ledger's, at most 100 tasks at a time: the answer must fit one message."""
        options = {"limit": min(limit, _MOST_FOUND), "after": after, "oldest_first": oldest_first}
        page: Page = await self._ask(verbs()["find"], (wanted,), options)
        return page

    def hear(self, answer: AnswerMessage) -> None:
        future = self._asked.pop(answer.number, None)
        if future is not None and not future.done():
            future.set_result(answer)

    async def _ask(self, verb: Verb, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        work = self._exchange(verb, args, kwargs)
        answer = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
        if answer.error is not None:
            raise _error(*answer.error)
        return verb.decode_answer(answer.value)

    async def _exchange(self, verb: Verb, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AnswerMessage:
        data = verb.encode_arguments(args, kwargs)
        if len(data) > _LARGEST:
            raise _too_large(verb.name, len(data))
        number = next(self._numbers)
        future: asyncio.Future[AnswerMessage] = self._loop.create_future()
        self._asked[number] = future
        self._say(AskMessage(number, verb.name, data, self._entry))
        try:
            return await future
        finally:
            self._asked.pop(number, None)


def _asking(verb: Verb) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def ask(self: StoreProxy, *args: Any, **kwargs: Any) -> Any:
        return await self._ask(verb, args, kwargs)

    return ask


def _too_large(verb: str, size: int) -> InvalidInput:
    return InvalidInput(
        f"{verb} with {size:,} bytes cannot be asked from inside a worker",
        why=f"what a worker asks goes to its manager in one message of at most {_LARGEST:,} bytes",
        fix="put the tasks in several portions, or from a process that has the store itself",
    )


def _error(code: str, what: str, why: str, fix: str) -> PitbossError:
    """The error that the manager met, as the same class where that can be made from its text."""
    kinds = (errors.InvalidInput, errors.NotFound, errors.Unsupported, errors.SchemaMismatch)
    for kind in (*kinds, errors.StoreDamaged, StoreUnavailable):
        if kind.code == code:
            return kind(what, why=why, fix=fix)
    if code == MemberRemoved.code:
        return MemberRemoved(what.split(maxsplit=1)[0])
    if code == StaleLease.code:
        return StaleLease(what.split()[1])
    error = PitbossError(what, why=why, fix=fix)
    error.code = code
    return error


for _verb in verbs().values():
    if _verb.open_to_workers and _verb.name not in vars(StoreProxy):
        setattr(StoreProxy, _verb.name, _asking(_verb))
