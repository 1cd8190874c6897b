"""An engine that writes down what it is asked and what it answers.

The verbs are derived from the protocol. A verb is evidence if `pitboss.testing.history` has an act of its name; its
arguments and its answer go into the fields of that act by name and type. Every other verb is passed through.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import UnionType
from typing import Any, Protocol, TypeVar, cast, get_args, get_origin

import msgspec

from pitboss.engines.protocol import Clock, FullStore, Store
from pitboss.engines.verbs import Verb, verbs
from pitboss.model.batch import Batch
from pitboss.model.duration import Moment
from pitboss.model.errors import InvalidInput, NotFound, NotLeader, QueueFull, SessionLost, StaleLease, StoreFull
from pitboss.testing.failpoints import Killed
from pitboss.testing.history import Act, History, ReadBatches

T = TypeVar("T")
_SURELY_NOT = (InvalidInput, NotFound, NotLeader, QueueFull, SessionLost, StaleLease, StoreFull)
_ALL = 10_000
_ACTS: dict[str, type[Act]] = {kind.__name__: kind for kind in get_args(Act)}


class Recorded(FullStore, Protocol):
    """What `recorded` returns: any engine, as one process of a history.

    Once a call ended in `Killed`, the process is dead: every further call is `Killed` too and is not recorded. What
    the engine itself does not have fails when it is called.
    """

    engine: Store
    history: History
    process: str
    dead: bool

    async def read_batches(self) -> list[Batch]:
        """All batches at one moment, as evidence."""


def recorded(engine: Store, history: History, process: str = "p1", *, clock: Clock | None = None) -> Recorded:
    """Record what this process asks the engine. `clock` is the store's, if it is known here."""
    return cast("Recorded", _Recorder(engine, history, process, clock))


class _Recorder:
    """Has every verb of the protocol; they are added below."""

    def __init__(self, engine: Store, history: History, process: str, clock: Clock | None) -> None:
        self.engine, self.history, self.process, self._clock = engine, history, process, clock
        self.dead = False
        self.name, self.clock = engine.name, engine.clock

    async def open(self) -> None:
        await self.engine.open()

    async def close(self) -> None:
        await self.engine.close()

    async def read_batches(self) -> list[Batch]:
        work = cast("FullStore", self.engine).batches(limit=_ALL)
        return await self.call(ReadBatches(), work, lambda batches: ReadBatches(batches=tuple(batches)))

    async def call(self, act: Act, work: Awaitable[T], answered: Callable[[T], Act]) -> T:
        call = self.history.begin(self.process, act, self._now())
        try:
            answer = await work
        except _SURELY_NOT as error:
            self.history.end(self.process, call, "fail", act, self._now(), type(error).__name__)
            raise
        except BaseException as error:
            self.dead = self.dead or isinstance(error, Killed)
            self.history.end(self.process, call, "info", act, self._now(), type(error).__name__)
            raise
        self.history.end(self.process, call, "ok", answered(answer), self._now())
        return answer

    def check_alive(self) -> None:
        if self.dead:
            raise Killed

    def _now(self) -> Moment | None:
        return None if self._clock is None else self._clock.now()


def _recording(verb: Verb, kind: type[Act] | None) -> Callable[..., Coroutine[Any, Any, Any]]:
    fields = {} if kind is None else {field.name: _kinds(field.type) for field in msgspec.structs.fields(kind)}

    async def ask(self: _Recorder, *args: Any, **kwargs: Any) -> Any:
        self.check_alive()
        method = getattr(self.engine, verb.name)
        if kind is None:
            return await method(*args, **kwargs)
        named = verb.arguments(args, kwargs)
        act = kind(**{name: _frozen(value) for name, value in named.items() if name in fields})
        open_fields = {name: kinds for name, kinds in fields.items() if name not in named}
        return await self.call(act, method(*args, **kwargs), lambda answer: _with_answer(act, open_fields, answer))

    return ask


def _with_answer(act: Act, fields: dict[str, tuple[type, ...]], answer: object) -> Act:
    """The act with its answer in the field of its type; as it is if no field is of that type."""
    value = _frozen(answer)
    name = next((name for name, kinds in fields.items() if isinstance(value, kinds)), None)
    return act if name is None else msgspec.structs.replace(act, **{name: value})


def _kinds(hint: Any) -> tuple[type, ...]:
    """The classes of a field's values."""
    parts = get_args(hint) if get_origin(hint) is UnionType else (hint,)
    return tuple(get_origin(part) or part for part in parts)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str | tuple) else value


for _verb in verbs().values():
    if _verb.name not in vars(_Recorder):
        _kind = _ACTS.get("".join(word.capitalize() for word in _verb.name.split("_")))
        setattr(_Recorder, _verb.name, _recording(_verb, _kind))

__all__ = ["Recorded", "recorded"]
